//! Replays the seeds of every target, and a fixed number of variations of each, without a fuzzer.
//!
//! An input that made the fuzzer fail is added to `seeds/`, and so becomes a test.

use std::fs;
use std::path::{Path, PathBuf};

use pronto_fuzz::TARGETS;

/// Number of variations of each seed.
const VARIATIONS: usize = 20_000;

/// Number of variations of each seed of targets whose inputs make links or whole sessions, and so take far longer.
const FEW_VARIATIONS: usize = 500;
const SLOW: [&str; 3] = ["shm_offer", "shm_lines", "session"];

/// Start of the sequence of variations. Fixed, so that a failure is reproducible.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[test]
fn seeds_and_their_variations_satisfy_every_property() {
    for (name, check) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seed");
        let mut random = Random(SEED);
        let variations = if SLOW.contains(name) { FEW_VARIATIONS } else { VARIATIONS };
        for seed in &seeds {
            check(seed);
            for _ in 0..variations {
                check(&vary(seed, &mut random));
            }
        }
        println!("{name}: {} seeds, {} inputs", seeds.len(), seeds.len() * (variations + 1));
    }
}

#[test]
fn every_target_has_a_binary_and_every_binary_is_a_target() {
    let mut files: Vec<String> = entries(&folder("fuzz_targets"))
        .iter()
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut names: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("the folder is part of the tree");
    files.map(|file| file.expect("its files can be listed").path()).collect()
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut files = entries(&folder("seeds").join(target));
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a seed is a plain file")).collect()
}

/// Returns a seed with some bytes changed, and sometimes truncated or extended.
fn vary(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(input.len().max(1));
        if let Some(byte) = input.get_mut(at) {
            *byte = match random.below(3) {
                0 => 0,
                1 => 0xff,
                _ => random.byte(),
            };
        }
    }
    match random.below(4) {
        0 => input.truncate(random.below(seed.len() + 1)),
        1 => input.resize(seed.len() + random.below(9), 0),
        _ => {}
    }
    input
}

/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.word() % bound as u64).expect("a value below a usize fits")
    }

    fn byte(&mut self) -> u8 {
        self.word().to_le_bytes()[0]
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(SEED);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}
