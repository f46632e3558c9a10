//! Concurrent work: a thread per item, or many independent items on all CPUs, such as simulated runs.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use crate::progress::Progress;

/// Runs `work` for each item in a separate thread. Returns the results in the order of the items.
pub(crate) fn each<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|thread| thread.join().expect("work does not panic")).collect()
    })
}

/// Runs `work` for all `items`, on as many threads as there are CPUs for this process. Returns the results in the order of the items.
pub(crate) fn all<T: Sync, R: Send>(
    items: &[T],
    progress: &mut Progress,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, core::num::NonZero::get).min(items.len());
    let next = Mutex::new(0..items.len());
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                // The range is consistent even after a panic of another thread.
                while let Some(index) = next.lock().unwrap_or_else(PoisonError::into_inner).next() {
                    if sender.send((index, work(&items[index]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            progress.step(&format!("run {}", index + 1));
            results[index] = Some(result);
        }
    });
    results
        .into_iter()
        .map(|result| result.expect("a thread that fails ends the scope with a panic"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..200).collect();
        let squares = all(&items, &mut Progress::on_stderr("test"), |item| item * item);
        assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        assert_eq!(squares.len(), 200);
        assert!(all(&[], &mut Progress::on_stderr("test"), |item: &u64| *item).is_empty());
    }
}
