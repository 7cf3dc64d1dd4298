//! The same question asked of stateright's tester.

use keyclaim_tests::proofs::linear::history::{Answer, Operation};
use keyclaim_tests::proofs::linear::spec::{Rules, Spec};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

#[derive(Clone)]
struct Key(Spec);

impl SequentialSpec for Key {
    type Op = Operation;
    type Ret = Answer;

    /// Asked of a call that was never answered: what it leaves behind, which may be nothing.
    fn invoke(&mut self, operation: &Operation) -> Answer {
        if let Some(after) = self.0.after(operation).pop() {
            self.0 = after;
        }
        Answer::Unknown
    }

    fn is_valid_step(&mut self, operation: &Operation, _: &Answer) -> bool {
        match self.0.after(operation).pop() {
            None => false,
            Some(after) => {
                self.0 = after;
                true
            }
        }
    }
}

/// Whether there is an order.
pub(crate) fn linearize(operations: &[Operation], rules: Rules) -> bool {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (thread, operation) in operations.iter().enumerate() {
        events.push((operation.called_at, false, thread));
        if operation.answer != Answer::Unknown {
            events.push((operation.told_at, true, thread));
        }
    }
    events.sort_unstable();
    let mut tester = LinearizabilityTester::new(Key(Spec::new(rules)));
    for (_, is_answer, thread) in events {
        let Some(operation) = operations.get(thread) else { continue };
        let fits = if is_answer {
            tester.on_return(thread, operation.answer.clone()).map(drop)
        } else {
            tester.on_invoke(thread, operation.clone()).map(drop)
        };
        fits.expect("each call is a thread of its own");
    }
    tester.is_consistent()
}
