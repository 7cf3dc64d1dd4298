//! One request under a key, run twice: the first call wins and completes, the second is answered again.
//!
//! `cargo run -p keyclaim --example minimal -- some.keyclaim` (a file that is made if there is none).

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Decision, Outcome, Response};
use keyclaim::{Abandoned, ClaimRequest, Id, Key, Options, Scope, Store};

fn main() -> keyclaim::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "minimal.keyclaim".into());
    let store = Store::open(path, Options::new(Abandoned::Hold))?;
    let id = Id::new(Scope::new("account 7")?, Key::new("order 4711, revision 1")?);
    let order = Request { method: b"POST", target: b"/orders", payload: b"2 apples", ..Request::default() };
    let request = ClaimRequest::new(id, Scheme::Raw, order);
    for _ in 0..2 {
        match store.claim(&request)? {
            Decision::Won(claim) => {
                println!("won: run it, now and only here");
                claim.complete(&Outcome::success(Response::new(201, "ordered")))?;
            }
            Decision::Replay(replay) => println!("ran before: answer {} again", replay.response.status),
            Decision::InFlight { retry_after_ms, .. } => println!("ask again in {} ms", retry_after_ms.0),
            Decision::Mismatch { .. } => println!("the key was used for another request: refuse this one"),
            Decision::Held { token, .. } => println!("outcome unknown: a person resolves token {token}"),
            Decision::Expired => println!("ran long ago: look the result up, do not run it"),
        }
    }
    store.close()
}
