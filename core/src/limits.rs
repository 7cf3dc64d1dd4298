//! Every bound of keyclaim in one place, with its unit in its name and its reason beside it.
//!
//! Whatever comes from outside is checked against these before it reaches the machine, so that no
//! caller can make a record, a queue or a page grow without end (P9).

/// Longest scope in bytes. 255 so that one length byte prefixes it; room for any account or tenant id.
pub const SCOPE_LEN_MAX: usize = 255;
/// Longest key in bytes unless the store is told otherwise. 255 is Stripe's documented limit.
pub const KEY_LEN_DEFAULT: usize = 255;
/// Longest key in bytes that a store can be configured to take.
pub const KEY_LEN_MAX: usize = 1024;
/// Longest line of the key header in bytes: the longest key with each byte escaped, and room for parameters.
pub const HEADER_LINE_LEN_MAX: usize = 8 * 1024;
/// Most JSON pointers that one fingerprint scheme leaves out; each is stored with every record (arbitrary).
pub const POINTERS_MAX: usize = 32;
/// Longest JSON pointer of a scheme in bytes (arbitrary; a path, not a payload).
pub const POINTER_LEN_MAX: usize = 255;
/// Deepest nesting of arrays and objects in canonical JSON: the bound that `serde_json` has too.
pub const JSON_DEPTH_MAX: usize = 128;
/// Largest power of ten in canonical JSON, either way: far beyond any amount, far from where `i64` ends.
pub const JSON_EXPONENT_MAX: u64 = 100_000_000_000_000_000;
/// Longest operation name in bytes (arbitrary; a name, not a payload).
pub const OPERATION_LEN_MAX: usize = 255;
/// Longest name of a step or a recovery point in bytes (arbitrary; a name, not a payload).
pub const NAME_LEN_MAX: usize = 64;
/// Most steps one generation may record. Each is read and written with its record (arbitrary).
pub const STEPS_MAX: usize = 64;
/// Largest result of one step in bytes: a receipt, an id; larger data belongs in the caller's own tables.
pub const STEP_RESULT_LEN_MAX: usize = 16 * 1024;
/// Largest data of a recovery point in bytes; the same reason as [`STEP_RESULT_LEN_MAX`].
pub const POINT_DATA_LEN_MAX: usize = 16 * 1024;
/// Bodies longer than this live in their own row, so that deciding on a key never reads them.
pub const BODY_INLINE_LEN_MAX: usize = 16 * 1024;
/// Largest stored response or request body in bytes unless configured; larger ones complete without it.
pub const BODY_LEN_DEFAULT: usize = 1024 * 1024;
/// Largest body limit that can be configured: one commit group must stay in memory.
pub const BODY_LEN_MAX: usize = 64 * 1024 * 1024;
/// Most stored header lines of one response (arbitrary; common servers refuse more than 100).
pub const HEADERS_MAX: usize = 100;
/// Largest total of stored header names and values in bytes (common servers refuse more than 8 to 64 KiB).
pub const HEADERS_LEN_MAX: usize = 32 * 1024;
/// Smallest status of a final answer (RFC 9110, section 15.2: a 1xx is interim).
pub const STATUS_FINAL: u16 = 200;
/// Largest status that common servers can send, three digits (RFC 9110, section 15).
pub const STATUS_MAX: u16 = 999;
/// Most rules for endings that one route may set (arbitrary; a range of statuses is one rule).
pub const ENDINGS_MAX: usize = 64;
/// Largest encoded record in bytes.
pub const RECORD_LEN_MAX: usize = 2 * 1024 * 1024;
/// What the decoder may allocate for one in bytes. It counts a number by its width, up to 8 bytes, that is stored in
/// one byte.
pub const RECORD_DECODED_LEN_MAX: usize = 8 * RECORD_LEN_MAX;

/// Default lease: long enough for most requests, short enough that a crash is not an outage.
pub const LEASE_MS_DEFAULT: u64 = 60_000;
/// Longest lease: a week. Whoever needs more sets none, and ends the claim by command.
pub const LEASE_MS_MAX: u64 = 7 * DAY_MS;
/// Default replay window, from completion: 24 h, what Stripe documents for its first API version.
pub const WINDOW_MS_DEFAULT: u64 = DAY_MS;
/// Longest replay window or reaper horizon: ten years (arbitrary; keeps arithmetic far from its end).
pub const HORIZON_MS_MAX: u64 = 3_653 * DAY_MS;
/// Default reaper horizon, from the last applied command: three days, a weekend.
pub const HORIZON_MS_DEFAULT: u64 = 3 * DAY_MS;
/// Longest duration of one step: a day (arbitrary; a longer one is a job, not a step).
pub const STEP_MS_MAX: u64 = DAY_MS;
/// Longest advice to poll again while a claim is in flight.
pub const POLL_HINT_MS: u64 = 1_000;
/// Advice to clients when the store cannot be asked: a reopen takes seconds (arbitrary).
pub const STORE_DOWN_HINT_MS: u64 = 5_000;

/// Longest time that counts across a reboot, when only the wall clock saw it, unless configured. An
/// hour: longer than a machine takes to boot, and the most that a broken time server can take from a
/// lease or a replay window.
pub const CLOCK_GAP_MS_DEFAULT: u64 = 60 * 60 * 1_000;
/// How far two threads' readings of the boot clock may arrive out of order. A reading that is further
/// back is a clock that was set back, not a thread that was slow (arbitrary).
pub const CLOCK_DISORDER_MS: u64 = 1_000;

/// Most claims waiting for the writer; the next one is told `Busy`.
pub const QUEUE_LEN_DEFAULT: usize = 1_024;
/// Most commands in one commit group. Beyond some 256 a group only adds latency: measured on redb,
/// 128 clients reached 19 k claims/s and 512 clients 17 k with six times the p99.
pub const GROUP_LEN_MAX: usize = 256;
/// Upper bounds in commands of the sizes that commit groups are counted by: powers of two, to the largest group.
pub const GROUP_BUCKETS_LEN: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Most unfinished records that one reading of the statistics looks at (arbitrary; some ten milliseconds, and a
/// store with more unfinished than that has another trouble than their exact number).
pub const STATS_READS_MAX: usize = 10_000;
/// Most commands of one claim object waiting at once; an owner says one thing after the other.
pub const OWNER_QUEUE_LEN_MAX: usize = 4;
/// For how many leases the store renews a live claim: a handler that runs ten times its lease is stuck.
pub const RENEW_LEASES_DEFAULT: u32 = 10;
/// How long a command waits for another process that writes to the same store, before it is told `Busy`, in
/// milliseconds. Arbitrary: far longer than any commit, and shorter than the patience of a proxy.
pub const WRITE_WAIT_MS_DEFAULT: u64 = 5_000;
/// Shortest and longest pause in microseconds between two looks whether another process has ended its write. The
/// shortest is a fraction of a sync; the longest was measured, see `docs/adr/0010-sharing.md`.
pub const WRITE_POLL_US: (u64, u64) = (50, 300);
/// Shortest and longest pause in milliseconds between two looks at a key that is in flight in another process, whose
/// outcome rings no bell here. The longest is how late its outcome is told; arbitrary, as what a person does not see.
pub const WAIT_POLL_MS: (u64, u64) = (5, 100);
/// How long the upkeep of one process keeps the others from theirs without a sign of life, in milliseconds; never
/// less than three of its periods. Arbitrary: a restart is shorter.
pub const UPKEEP_LEASE_MS_MIN: u64 = 10_000;
/// Longest pause in milliseconds between two looks at a file that another process has open. A quarter of
/// a second: a rolling restart is not held up by more, and four looks a second cost nothing.
pub const OPEN_POLL_MS_MAX: u64 = 250;
/// Default page cache in bytes (redb's own default is 1 GiB, too much for an embedded store).
pub const CACHE_LEN_DEFAULT: usize = 64 * 1024 * 1024;
/// Longest name of a table of the application's rows: its length is one byte.
pub const APP_TABLE_LEN_MAX: usize = u8::MAX as usize;
/// Longest key of a row of the application in bytes, as much as a key of a request.
pub const APP_KEY_LEN_MAX: usize = KEY_LEN_MAX;
/// Largest value of a row of the application in bytes (arbitrary; what is larger belongs in a file).
pub const APP_VALUE_LEN_MAX: usize = 1024 * 1024;
/// Most rows and events that one command may write: one commit group then stays a matter of milliseconds.
pub const WRITES_MAX: usize = 256;
/// Largest total of rows and events of one command in bytes (arbitrary; a commit group stays in memory).
pub const WRITES_LEN_MAX: usize = 4 * 1024 * 1024;
/// Most rows that one page of a listing returns.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Most records that one page of a listing reads before it returns what it has and a cursor.
pub const PAGE_READS_MAX: usize = 10_000;
/// Most due rows that the reaper changes in one commit: as many as a commit group has commands, so that
/// claims wait for a batch no longer than for each other.
pub const REAP_BATCH_LEN_MAX: usize = GROUP_LEN_MAX;
/// Most unfinished records that the result of one pass lists; all of them are counted, and told to the hook.
pub const REAP_LISTED_MAX: usize = 1_000;
/// Shortest period in milliseconds between two passes: a hundred a second is a mistake in the unit.
pub const REAP_EVERY_MS_MIN: u64 = 10;
/// By how much the period of passes may differ from what was set, in percent either way (arbitrary): stores
/// that were opened together soon reap apart.
pub const REAP_JITTER_PERCENT: u32 = 10;

/// Longest time in milliseconds that a failed try puts off the next one: a week, as long as a lease.
pub const POSTPONE_MS_MAX: u64 = LEASE_MS_MAX;
/// Most tries at one abandoned request before it is held for a person, unless set: with the default pauses
/// eight hours on average, so that a night's outage of another service is slept through.
pub const TRIES_MAX_DEFAULT: u32 = 100;
/// Abandoned requests that are finished at once, unless set (arbitrary; small, since the live requests of the
/// same process share its connections and its processors).
pub const FINISHING_DEFAULT: usize = 4;
/// Most abandoned requests that are finished at once: each has a thread.
pub const FINISHING_MAX: usize = 256;
/// Most due rows that one look of the completer reads.
pub const FINISH_PAGE_LEN_MAX: usize = GROUP_LEN_MAX;
/// How long in milliseconds closing a store waits for handlers of the completer, unless set: less than the
/// 30 s after which the common orchestrators kill.
pub const FINISH_CLOSE_WAIT_MS_DEFAULT: u64 = 20_000;
/// Longest topic of an event in bytes: longer than those of common brokers (Kafka's are at most 249).
pub const EVENT_TOPIC_LEN_MAX: usize = 255;
/// Longest ordering key of an event in bytes: as long as a scope, so that one length byte prefixes it.
pub const EVENT_ORDERING_KEY_LEN_MAX: usize = 255;
/// Largest payload of an event in bytes (arbitrary; it is written again with every delivery that begins).
pub const EVENT_PAYLOAD_LEN_MAX: usize = 64 * 1024;
/// Most events that one command carries (arbitrary; all of them are in memory until it is committed).
pub const EVENTS_MAX: usize = 64;
/// Longest reason for a failed delivery that is stored, in bytes; a longer one is cut off (arbitrary).
pub const FAILURE_LEN_MAX: usize = 255;
/// Most events that are leased, or whose deliveries are ended, in one commit: as many as a commit group has
/// commands, so that claims wait for it no longer than for each other.
pub const RELAY_BATCH_LEN_MAX: usize = GROUP_LEN_MAX;
/// Default number of deliveries that a relay runs at once (arbitrary).
pub const RELAY_WORKERS_DEFAULT: usize = 4;
/// Most deliveries that a relay runs at once: two for each fit into one batch.
pub const RELAY_WORKERS_MAX: usize = RELAY_BATCH_LEN_MAX / 2;
/// Default lease of a delivery in milliseconds: publishing takes milliseconds, a broker's failover seconds.
pub const EVENT_LEASE_MS_DEFAULT: u64 = 30_000;
/// Default number of deliveries until an event is a dead letter: with the default delays, after about an hour.
pub const EVENT_ATTEMPTS_DEFAULT: u32 = 20;
/// Default longest delay before the second delivery, in milliseconds; it doubles with each.
pub const BACKOFF_BASE_MS_DEFAULT: u64 = 1_000;
/// Default longest delay before any delivery, in milliseconds: ten minutes (arbitrary).
pub const BACKOFF_CAP_MS_DEFAULT: u64 = 10 * 60 * 1_000;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

const _: () = assert!(KEY_LEN_DEFAULT <= KEY_LEN_MAX && 2 * KEY_LEN_MAX < HEADER_LINE_LEN_MAX);
const _: () = assert!(SCOPE_LEN_MAX <= u8::MAX as usize);
const _: () = assert!(BODY_INLINE_LEN_MAX <= BODY_LEN_DEFAULT && BODY_LEN_DEFAULT <= BODY_LEN_MAX);
const _: () = assert!(LEASE_MS_DEFAULT <= LEASE_MS_MAX && WINDOW_MS_DEFAULT <= HORIZON_MS_DEFAULT);
const _: () = assert!(HORIZON_MS_DEFAULT <= HORIZON_MS_MAX && STEP_MS_MAX <= LEASE_MS_MAX);
const _: () = assert!(
    STEPS_MAX * (STEP_RESULT_LEN_MAX + NAME_LEN_MAX + 64)
        + POINT_DATA_LEN_MAX
        + BODY_INLINE_LEN_MAX
        + HEADERS_LEN_MAX
        <= RECORD_LEN_MAX
);
const _: () = assert!(matches!(GROUP_BUCKETS_LEN.last(), Some(&GROUP_LEN_MAX)));
const _: () = assert!(PAGE_ROWS_MAX <= PAGE_READS_MAX);
const _: () =
    assert!(EVENT_LEASE_MS_DEFAULT <= LEASE_MS_MAX && BACKOFF_BASE_MS_DEFAULT <= BACKOFF_CAP_MS_DEFAULT);
const _: () = assert!(
    EVENT_PAYLOAD_LEN_MAX
        + EVENT_TOPIC_LEN_MAX
        + EVENT_ORDERING_KEY_LEN_MAX
        + SCOPE_LEN_MAX
        + FAILURE_LEN_MAX
        + 128
        <= RECORD_LEN_MAX
);
