//! The library in a program that uses the flag of the paper. Without the module, the flag fails and everything else works.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod program;

use program::{O_EXPEDITE, under_preload};

#[test]
fn without_the_module_only_the_flag_fails() {
    if std::path::Path::new("/dev/expedite").exists() {
        return pronto_skip::because("the module is loaded here");
    }
    under_preload("without_the_module_only_the_flag_fails", |ends| {
        let before = ends.flags().unwrap();
        assert_eq!(before & O_EXPEDITE, 0);
        assert_eq!(ends.set_flags(before | libc::O_NONBLOCK), Ok(()));
        assert_eq!(ends.set_flags(before | libc::O_APPEND | O_EXPEDITE), Err(libc::ENODEV));
        // The other flags were set.
        assert_eq!(ends.flags().unwrap(), before | libc::O_APPEND);
        assert_eq!(ends.set_flags(before), Ok(()));
        // A success leaves errno unchanged.
        nix::errno::Errno::EDOM.set();
        assert_eq!((ends.set_flags(before), ends.flags()), (Ok(()), Ok(before)));
        assert_eq!(nix::errno::Errno::last(), nix::errno::Errno::EDOM);
    });
}

#[test]
fn the_numbers_are_those_of_the_header() {
    let header = include_str!("../../../kernel/expedite/expedite.h");
    assert!(header.contains(&format!("#define O_EXPEDITE {O_EXPEDITE:#x}\n")), "{O_EXPEDITE:#x}");
    let source = include_str!("../src/lib.rs");
    assert!(source.contains("const O_EXPEDITE: c_int = 0x2000_0000;"));
    for (name, number, size) in [("FLAG", "e0", "20"), ("UNFLAG", "e1", "04"), ("FIND", "e5", "04")] {
        let line =
            header.lines().find(|line| line.starts_with(&format!("#define EXPEDITE_{name} "))).unwrap();
        assert!(line.contains(&format!("_IOW('E', 0x{number}, ")), "{line}");
        // Direction, size in bytes, letter and number.
        let constant = format!("const {name}: c_ulong = 0x40{size}_45{number};");
        assert!(source.contains(&constant), "{constant}");
    }
}
