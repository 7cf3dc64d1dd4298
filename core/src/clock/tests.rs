//! Every way a clock can be wrong, against store time.

use super::*;

const HOUR: u64 = 3_600_000;
const TEN_YEARS: u64 = 3_653 * 24 * HOUR;
const START: u64 = 1_800_000_000_000;

fn started() -> (ManualClock, StoreTime) {
    let clock = ManualClock::new(START);
    let time = StoreTime::resume(None, clock.read(), StoreTime::GAP_MAX_DEFAULT);
    (clock, time)
}

fn reopened(time: &StoreTime, clock: &ManualClock) -> StoreTime {
    let saved = Saved::from_bytes(&time.saved().to_bytes()).expect("just encoded");
    StoreTime::resume(Some(saved), clock.read(), StoreTime::GAP_MAX_DEFAULT)
}

#[test]
fn a_first_opening_starts_at_the_wall_clock() {
    let (clock, mut time) = started();
    assert_eq!(time.now(clock.read()), Millis(START));
}

#[test]
fn a_wall_clock_that_jumps_changes_nothing_on_the_same_boot() {
    for wall in [START - HOUR, START + TEN_YEARS, 0, u64::MAX] {
        let (clock, mut time) = started();
        clock.set_wall(wall);
        assert_eq!(time.now(clock.read()), Millis(START));
        clock.advance(5);
        assert_eq!(time.now(clock.read()), Millis(START + 5));
        assert_eq!(reopened(&time, &clock).now(clock.read()), Millis(START + 5));
    }
}

#[test]
fn a_frozen_wall_clock_does_not_stop_store_time() {
    let (clock, mut time) = started();
    for step in 1..=3 {
        clock.advance(10);
        clock.set_wall(START);
        assert_eq!(time.now(clock.read()), Millis(START + 10 * step));
    }
}

#[test]
fn an_opening_on_the_same_boot_continues_by_the_boot_clock() {
    let (clock, mut time) = started();
    time.now(clock.read());
    clock.advance(7 * 24 * HOUR);
    clock.set_wall(START - HOUR);
    assert_eq!(reopened(&time, &clock).now(clock.read()), Millis(START + 7 * 24 * HOUR));
}

#[test]
fn a_reboot_counts_the_wall_clock_up_to_the_gap() {
    for (wall, expected) in [
        (START + 90_000, START + 90_000),
        (START + TEN_YEARS, START + HOUR),
        (START - HOUR, START),
        (START, START),
    ] {
        // The new boot may be younger than the old one was, or older.
        for since_boot in [0, TEN_YEARS] {
            let (clock, time) = started();
            clock.reboot();
            clock.advance(since_boot);
            clock.set_wall(wall);
            let mut after = reopened(&time, &clock);
            assert_eq!(after.now(clock.read()), Millis(expected), "wall {wall}");
            clock.advance(3);
            assert_eq!(after.now(clock.read()), Millis(expected + 3), "wall {wall}");
        }
    }
}

#[test]
fn the_gap_is_the_callers_choice() {
    let (clock, time) = started();
    clock.advance(HOUR);
    clock.reboot();
    let none = StoreTime::resume(Some(time.saved()), clock.read(), Millis(0));
    assert_eq!(none.saved().store_ms, Millis(START));
    let all = StoreTime::resume(Some(time.saved()), clock.read(), Millis(u64::MAX));
    assert_eq!(all.saved().store_ms, Millis(START + HOUR));
}

#[test]
fn a_boot_clock_that_went_back_between_openings_counts_as_a_reboot() {
    for back_ms in [1, 59_000] {
        let (clock, time) = started();
        let Boot { id, ms } = clock.read().boot.expect("the manual clock has one");
        clock.set_boot(Some(Boot { id, ms: ms - back_ms }));
        clock.set_wall(START + 500);
        assert_eq!(reopened(&time, &clock).saved().store_ms, Millis(START + 500));
    }
}

#[test]
fn a_boot_clock_that_went_back_while_running_never_stops_store_time() {
    let (clock, mut time) = started();
    let Boot { id, .. } = clock.read().boot.expect("the manual clock has one");
    clock.set_boot(Some(Boot { id, ms: 0 }));
    assert_eq!(time.now(clock.read()), Millis(START));
    clock.advance(9);
    assert_eq!(time.now(clock.read()), Millis(START + 9));
}

#[test]
fn an_older_reading_that_arrives_late_changes_nothing() {
    let (clock, mut time) = started();
    let older = clock.read();
    clock.advance(CLOCK_DISORDER_MS);
    assert_eq!(time.now(clock.read()), Millis(START + CLOCK_DISORDER_MS));
    assert_eq!(time.now(older), Millis(START + CLOCK_DISORDER_MS));
    assert_eq!(time.now(clock.read()), Millis(START + CLOCK_DISORDER_MS), "no span is counted twice");
}

#[test]
fn without_a_boot_clock_the_wall_clock_is_taken_but_never_backwards() {
    let (clock, mut time) = started();
    clock.set_boot(None);
    for (wall, expected) in [(START + 4, START + 4), (START - HOUR, START + 4), (START + 5, START + 5)] {
        clock.set_wall(wall);
        assert_eq!(time.now(clock.read()), Millis(expected));
        assert_eq!(reopened(&time, &clock).saved().store_ms, Millis(expected));
    }
    clock.reboot();
    clock.advance(TEN_YEARS);
    let found = reopened(&time, &clock).saved().store_ms;
    assert_eq!(found, Millis(START + 5 + HOUR), "a boot clock that appears is bounded as a reboot is");
}

#[test]
fn nothing_wraps_at_the_ends_of_time() {
    let ends = [0, 1, u64::MAX - 1, u64::MAX];
    for store in ends {
        for (wall, boot) in ends.into_iter().flat_map(|wall| ends.map(|boot| (wall, boot))) {
            for id in [[0; 16], [1; 16]] {
                let saved = Saved {
                    store_ms: Millis(store),
                    wall_ms: u64::MAX - wall,
                    boot: Some(Boot { id: [0; 16], ms: 5 }),
                };
                let reading = Reading { wall_ms: wall, boot: Some(Boot { id, ms: boot }) };
                let mut time = StoreTime::resume(Some(saved), reading, Millis(u64::MAX));
                assert!(time.now(reading) >= Millis(store));
                assert!(time.now(Reading { wall_ms: wall, boot: None }) >= Millis(store));
            }
        }
    }
}

#[test]
fn saved_bytes_return_the_same_value() {
    let boot = Boot { id: *b"0123456789abcdef", ms: 0x1122_3344_5566_7788 };
    for boot in [None, Some(boot)] {
        let saved = Saved { store_ms: Millis(u64::MAX), wall_ms: 42, boot };
        assert_eq!(Saved::from_bytes(&saved.to_bytes()).expect("just encoded"), saved);
    }
}

#[test]
fn damaged_or_half_lost_saved_bytes_are_never_taken_for_a_time() {
    let boot = Some(Boot { id: [7; 16], ms: 1 });
    let good = Saved { store_ms: Millis(START), wall_ms: START, boot }.to_bytes();
    for len in 0..good.len() {
        let error = Saved::from_bytes(&good[..len]).expect_err("half lost");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}");
    }
    assert_eq!(
        Saved::from_bytes(&[&good[..], &[0]].concat()).expect_err("longer").kind(),
        ErrorKind::Corrupt
    );
    for bit in 0..good.len() * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = Saved::from_bytes(&bad).expect_err("one bit is wrong");
        let expected = if bit < 8 { ErrorKind::Incompatible } else { ErrorKind::Corrupt };
        assert_eq!(error.kind(), expected, "bit {bit}");
    }
}
