//! Copies of every length and alignment.

use alloc::vec;

use super::*;

/// Returns every length up to a few blocks, at every alignment within two words.
fn places() -> impl Iterator<Item = (usize, usize)> {
    (0..16).flat_map(|skip| (0..3 * BLOCK + 9).map(move |len| (skip, len)))
}

fn pattern(len: usize) -> Vec<u8> {
    (1..=251).cycle().take(len).collect()
}

#[test]
fn copies_round_trip_and_touch_no_other_bytes() {
    for (skip, len) in places() {
        let bytes = pattern(len);
        let mut shared = vec![0_u64; 40];
        let base = NonNull::new(shared.as_mut_ptr()).unwrap().cast::<u8>();
        // SAFETY: 320 bytes are more than the largest skip and length together.
        let place = unsafe { base.add(skip) };
        // SAFETY: as above, and no other thread has access to the memory.
        unsafe { to_shared(&bytes, place) };
        let mut back = vec![0xee; len];
        // SAFETY: as above.
        unsafe { from_shared(place, &mut back) };
        assert_eq!(back, bytes, "{len} bytes at {skip}");
        let all: Vec<u8> = shared.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(all[..skip].iter().chain(&all[skip + len..]).all(|byte| *byte == 0), "{len} at {skip}");
    }
}

#[test]
fn numbers_are_appended_to_what_is_there() {
    for (skip, len) in places() {
        let mut shared = vec![0_u64; 40];
        let base = NonNull::new(shared.as_mut_ptr()).unwrap().cast::<u8>();
        // SAFETY: 320 bytes are more than the largest skip and length together.
        let place = unsafe { base.add(skip) };
        // SAFETY: as above, and no other thread has access to the memory.
        unsafe { to_shared(&pattern(len), place) };
        // SAFETY: as above.
        let lent = unsafe { SharedBytes::new(place, len) };
        let mut numbers = vec![7_u16];
        lent.append_to(&mut numbers);
        let expected =
            pattern(len).as_chunks().0.iter().map(|bytes| u16::from_ne_bytes(*bytes)).collect::<Vec<_>>();
        assert_eq!((numbers[0], &numbers[1..]), (7, &expected[..]), "{len} bytes at {skip}");
    }
}

/// The instruction would move one byte per cycle.
#[test]
fn no_string_instruction_copies_to_a_place_a_few_bytes_above_the_source_in_its_page() {
    let place = |address| NonNull::without_provenance(core::num::NonZeroUsize::new(address).unwrap());
    let from = place(1 << 20);
    for above in [1, 8, 63, 4096 + 1, 8 * 4096 + 63] {
        assert!(!string::suits(from, place((1 << 20) + above)), "{above} bytes above");
    }
    // The CPU decides on all other places alike.
    let is_fast = string::suits(from, from);
    for above in [64, 4095, 4096, 4096 + 64] {
        assert_eq!(string::suits(from, place((1 << 20) + above)), is_fast, "{above} bytes above");
    }
}

#[test]
fn long_copies_are_exact_at_every_alignment() {
    let lens = [STRING_MIN - 1, STRING_MIN, STRING_MIN + 1, 3 * STRING_MIN + 77];
    let places = lens
        .iter()
        .flat_map(|len| (0..17).flat_map(move |from| [0, 1, 8, 63, 64].map(|to| (*len, from, to))));
    for (len, from, to) in places {
        let bytes = pattern(len);
        let mut memory = [vec![0_u64; 2048], vec![0_u64; 2048]];
        let [first, second] =
            memory.each_mut().map(|words| NonNull::new(words.as_mut_ptr()).unwrap().cast::<u8>());
        // SAFETY: 16 KiB are more than the largest offset and length together.
        let first = unsafe { first.add(from) };
        // SAFETY: as above.
        let copy = unsafe { second.add(to) };
        // SAFETY: as above, and no other thread has access to the memory.
        unsafe { to_shared(&bytes, first) };
        // SAFETY: as above.
        let lent = unsafe { SharedBytes::new(first, len) };
        // SAFETY: as above.
        unsafe { lent.copy_to_shared(copy) };
        let mut back = vec![0xee; len + to];
        // SAFETY: as above.
        unsafe { from_shared(copy, &mut back[to..]) };
        assert_eq!(back[to..], bytes, "{len} bytes from {from} to {to}");
        let all: Vec<u8> = memory[1].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(all[to..to + len], bytes);
        assert!(all[..to].iter().chain(&all[to + len..]).all(|byte| *byte == 0), "{len} from {from} to {to}");
    }
}

#[test]
fn blocks_have_every_byte_once_and_in_order() {
    for (skip, len) in places() {
        let mut shared = vec![0_u64; 40];
        let base = NonNull::new(shared.as_mut_ptr()).unwrap().cast::<u8>();
        // SAFETY: 320 bytes are more than the largest skip and length together.
        let place = unsafe { base.add(skip) };
        // SAFETY: as above, and no other thread has access to the memory.
        unsafe { to_shared(&pattern(len), place) };
        // SAFETY: as above.
        let lent = unsafe { SharedBytes::new(place, len) };
        let mut read = Vec::new();
        lent.read_blocks(&mut |block, count| {
            assert!(block[count..].iter().all(|byte| *byte == 0));
            read.extend_from_slice(&block[..count]);
        });
        assert_eq!(read, pattern(len), "{len} bytes at {skip}");
    }
}

/// The standard library asks the CPU in the same way.
#[cfg(all(target_arch = "x86_64", not(simulated)))]
#[test]
fn the_string_instruction_is_used_where_the_cpu_says_that_it_is_fast() {
    let place = NonNull::from(&mut [0_u8; 64]).cast();
    let is_fast = std::arch::is_x86_feature_detected!("ermsb");
    assert_eq!([string::suits(place, place), string::suits(place, place)], [is_fast; 2]);
}
