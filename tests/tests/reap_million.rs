//! The reaper on a large store: what a pass reads is what is due, however much is not.

use keyclaim_tests::bench::reap::Filled;

#[test]
fn a_pass_over_a_million_records_reads_the_100_000_due_ones_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let filled = Filled::make(folder.path(), 1_000_000);
    assert_eq!(filled.due(), 100_000);
    let reaped = filled.reap();
    assert_eq!((reaped.rows_read, reaped.tombstoned), (100_000, 100_000));
    assert_eq!(reaped.batches, 100_000_u64.div_ceil(256), "a bounded number of rows in each commit");
    assert_eq!(filled.reap().rows_read, 0);
}
