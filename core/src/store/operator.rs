//! What a person may do: resolve, forget, extend. Each names the token it saw.

use super::Store;
use super::queue::Lane;
use crate::key::Id;
use crate::machine::{Answer, Command, OperatorAct, OperatorCommand, Outcome, StepResult};
use crate::policy::Millis;
use crate::{Error, Result, Token};

impl Store {
    /// Resolves a held claim: this was its outcome, and it is answered from now on.
    ///
    /// The token is the one that [`Store::inspect`] showed; `Fenced` says that the key has changed
    /// since, and nothing happened. Returns the token that is current from now on.
    pub fn resolve_complete(&self, id: &Id, seen: Token, outcome: Outcome) -> Result<Token> {
        self.operate(id, seen, OperatorAct::ResolveComplete(self.bounded(outcome)))
    }

    /// Resolves a held claim: nothing happened, and the key is new. Otherwise like [`Store::resolve_complete`].
    pub fn resolve_absent(&self, id: &Id, seen: Token) -> Result<Token> {
        self.operate(id, seen, OperatorAct::ResolveAbsent)
    }

    /// Resolves a held claim: the next claim may go on with it, whatever the abandoned policy says.
    ///
    /// If a step is in doubt, `step` is what became of it. Otherwise like [`Store::resolve_complete`].
    pub fn resolve_resumable(&self, id: &Id, seen: Token, step: Option<StepResult>) -> Result<Token> {
        self.operate(id, seen, OperatorAct::ResolveResumable(step))
    }

    /// Makes the key new, whatever it holds; its owner, if it has one, is fenced.
    /// Otherwise like [`Store::resolve_complete`].
    pub fn forget(&self, id: &Id, seen: Token) -> Result<Token> {
        self.operate(id, seen, OperatorAct::Forget)
    }

    /// Answers a finished request again until this long from now; never shortens its replay window.
    /// Otherwise like [`Store::resolve_complete`].
    pub fn extend_window(&self, id: &Id, seen: Token, window: std::time::Duration) -> Result<Token> {
        self.operate(id, seen, OperatorAct::ExtendWindow(Millis::from_duration(window)))
    }

    fn operate(&self, id: &Id, seen: Token, act: OperatorAct) -> Result<Token> {
        let command = || (Command::Operator(OperatorCommand { seen, act }), ());
        match self.running.shared.ask(Lane::Claims, id, command)?.answer? {
            Answer::Operator(token) => Ok(token),
            _ => Err(Error::misdelivered("an operator")),
        }
    }

    pub(crate) fn bounded(&self, outcome: Outcome) -> Outcome {
        outcome.bounded(self.running.shared.options.body_len_max)
    }
}
