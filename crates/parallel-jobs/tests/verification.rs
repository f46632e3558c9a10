//! The verification of IS and MG: it accepts the results, and no others.

use pronto_parallel_jobs::comm::{OverPronto, Rank, Settings};
use pronto_parallel_jobs::is::{self, IntegerSort};
use pronto_parallel_jobs::mg::{self, Coefficients, MultiGrid};
use pronto_parallel_jobs::outcome::SystemClock;

fn alone(name: &str) -> OverPronto {
    let address = format!("shm:@jobs-verification-{name}-{}", std::process::id());
    OverPronto::start(Rank(0), &Settings::new(vec![address])).expect("it starts")
}

#[test]
fn a_key_that_changes_its_rank_is_noticed() {
    let mut comm = alone("key");
    let mut verified = |change: &dyn Fn(&mut [u32])| {
        let mut sort = IntegerSort::new(&comm, is::Class::S);
        change(sort.keys_mut());
        sort.run(&mut comm, &SystemClock, &()).unwrap().verified
    };
    assert!(verified(&|_| ()));
    // The changes move a key past a test key, from below to above and from above to below.
    assert!(!verified(&|keys| *keys.iter_mut().min().unwrap() = 2047));
    assert!(!verified(&|keys| *keys.iter_mut().max().unwrap() = 0));
    // A test key itself.
    assert!(!verified(&|keys| keys[23_627] += 100));
}

#[test]
fn each_coefficient_matters() {
    let mut comm = alone("coefficient");
    let mut verified = |coefficients| {
        MultiGrid::new(&comm, mg::Class::S, coefficients).run(&mut comm, &SystemClock, &()).unwrap().verified
    };
    assert!(verified(Coefficients::NPB));
    for index in 0..4 {
        let mut wrong = Coefficients::NPB;
        wrong.equation[index] += 1e-6;
        assert!(!verified(wrong), "equation {index}");
        let mut wrong = Coefficients::NPB;
        wrong.smoother[index] += 1e-6;
        assert!(!verified(wrong), "smoother {index}");
    }
}
