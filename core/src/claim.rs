//! What a winner holds: the right to run one attempt, and the means to say how it went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::codec;
use crate::key::Id;
use crate::machine::{
    Act, Answer, BeginEffect, Blob, Command, EffectAnswer, HoldReason, InDoubt, Outcome, OwnerAnswer,
    OwnerCommand, Point, Step, StepResult, Won, WonKind,
};
use crate::store::{Lane, Place, Ringing, Running};
use crate::token::downstream_key;
use crate::{Error, ErrorKind, Generation, Millis, Result, Token, Writes, Written};

/// A win: while it lives in this process, the store renews its lease.
///
/// Say how it ended: [`complete`](Self::complete), [`release`](Self::release),
/// [`abandon`](Self::abandon) or [`hold`](Self::hold). Dropping it says nothing: only the renewals
/// stop, and once the lease is over the abandoned policy decides.
///
/// Every command may be asked again with the same arguments after `Unknown`, or after its future was
/// dropped: it is told as the same command, and applied once. On `Fenced` stop working and drop the
/// result: another attempt owns the key.
pub struct Claim {
    running: Arc<Running>,
    id: Id,
    won: Won,
    place: (Vec<u8>, Token),
    said: Mutex<Said>,
    waiting: Arc<AtomicUsize>,
    /// How many recorded steps this attempt has met.
    met: AtomicU32,
}

/// What this claim has said so far.
struct Said {
    seq: u64,
    /// The last command whose answer nobody has seen: asked again, it keeps its number.
    unheard: Option<(u64, [u8; 16])>,
}

impl Claim {
    pub(crate) fn begin(running: Arc<Running>, id: Id, won: Won, lease_ms: Option<Millis>) -> Self {
        let place = (id.encode(), won.token);
        running.shared.join(place.clone());
        running.keep_renewed(&id, &place, lease_ms.filter(|_| won.lease_until_ms.is_some()));
        let said = Mutex::new(Said { seq: won.last_seq, unheard: None });
        Self { running, id, won, place, said, waiting: Arc::default(), met: AtomicU32::new(0) }
    }

    /// The fencing number of this attempt: hand it to whatever you write to.
    pub fn token(&self) -> Token {
        self.won.token
    }

    /// The intent, the same for every attempt of it.
    pub fn generation(&self) -> Generation {
        self.won.generation
    }

    /// Which attempt of the intent this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.won.attempt
    }

    /// How it was won.
    pub fn kind(&self) -> WonKind {
        self.won.kind
    }

    /// When the lease it was handed out with is over; none if it ends only by command.
    pub fn lease_until_ms(&self) -> Option<Millis> {
        self.won.lease_until_ms
    }

    /// Where to resume: the last recovery point of the attempts before.
    pub fn point(&self) -> Option<&Point> {
        self.won.point.as_ref()
    }

    /// The steps that the attempts before have recorded.
    pub fn steps(&self) -> &[Step] {
        &self.won.steps
    }

    /// Who claimed.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Whether the store has found out that another attempt owns the key. False proves nothing.
    pub fn is_lost(&self) -> bool {
        self.running.shared.is_lost(&self.place)
    }

    /// A key for one step's call to another service: the same for every attempt of this intent,
    /// another for the next.
    pub fn downstream_key(&self, step: &str) -> String {
        downstream_key(self.running.shared.store_id(), &self.id, self.won.generation, step)
    }

    /// Lets the lease run anew from now; with `Some` length, from now on with that one.
    /// Returns when it is over.
    pub fn renew(&self, lease: Option<Duration>) -> Result<Option<Millis>> {
        let lease_ms = lease.map(Millis::from_duration);
        self.renewed(lease_ms, &self.say(Act::Renew { lease_ms })?)
    }

    /// Like [`Claim::renew`], without blocking.
    pub async fn renew_async(&self, lease: Option<Duration>) -> Result<Option<Millis>> {
        let lease_ms = lease.map(Millis::from_duration);
        self.renewed(lease_ms, &self.say_async(Act::Renew { lease_ms }).await?)
    }

    /// Records a recovery point: should this attempt die, the next one is handed it, with the steps so far.
    pub fn checkpoint(&self, point: &str, data: &[u8]) -> Result<()> {
        self.say(self.checkpoint_act(point, data, Writes::new())).map(drop)
    }

    /// Like [`Claim::checkpoint`], without blocking.
    pub async fn checkpoint_async(&self, point: &str, data: &[u8]) -> Result<()> {
        self.say_async(self.checkpoint_act(point, data, Writes::new())).await.map(drop)
    }

    /// Like [`Claim::checkpoint`], with writes that commit with it; on a conflict neither happened.
    pub fn checkpoint_with(&self, point: &str, data: &[u8], writes: Writes) -> Result<Written> {
        self.ask(self.checkpoint_act(point, data, writes)).map(heard)
    }

    /// Like [`Claim::checkpoint_with`], without blocking.
    pub async fn checkpoint_with_async(&self, point: &str, data: &[u8], writes: Writes) -> Result<Written> {
        self.ask_async(self.checkpoint_act(point, data, writes)).await.map(heard)
    }

    /// Records the intent of a step that takes at most `limit`, or says what became of it before.
    ///
    /// Only [`EffectAnswer::Run`] means: call it now, with its [`downstream_key`](Self::downstream_key),
    /// and cut it off at `until_ms`; then say how it ended with [`finish_effect`](Self::finish_effect).
    pub fn begin_effect(&self, step: &str, limit: Duration, in_doubt: InDoubt) -> Result<EffectAnswer> {
        let act = self.begin_act(step, limit, in_doubt);
        self.expect_effect(self.say(act)?)
    }

    /// Like [`Claim::begin_effect`], without blocking.
    pub async fn begin_effect_async(
        &self,
        step: &str,
        limit: Duration,
        in_doubt: InDoubt,
    ) -> Result<EffectAnswer> {
        let act = self.begin_act(step, limit, in_doubt);
        self.expect_effect(self.say_async(act).await?)
    }

    /// Records how a step ended.
    pub fn finish_effect(&self, step: &str, result: StepResult) -> Result<()> {
        let was_sent = result != StepResult::NotSent;
        self.say(Act::FinishEffect { name: step.into(), result })?;
        self.met_one_more(was_sent);
        Ok(())
    }

    /// Like [`Claim::finish_effect`], without blocking.
    pub async fn finish_effect_async(&self, step: &str, result: StepResult) -> Result<()> {
        let was_sent = result != StepResult::NotSent;
        self.say_async(Act::FinishEffect { name: step.into(), result }).await?;
        self.met_one_more(was_sent);
        Ok(())
    }

    /// Records the outcome: every later claim within the replay window is answered with it.
    ///
    /// *Durability*: on disk when this returns. A body over the store's limit is not kept; that the
    /// request ran is.
    pub fn complete(&self, outcome: &Outcome) -> Result<()> {
        self.say_last(self.complete_act(outcome, Writes::new()))
    }

    /// Like [`Claim::complete`], without blocking. Once it was polled, dropping it does not take the outcome back.
    pub async fn complete_async(&self, outcome: &Outcome) -> Result<()> {
        self.say_last_async(self.complete_act(outcome, Writes::new())).await
    }

    /// Like [`Claim::complete`], with writes that commit with the outcome; on a conflict neither happened, and
    /// the claim goes on.
    pub fn complete_with(&self, outcome: &Outcome, writes: Writes) -> Result<Written> {
        self.ask(self.complete_act(outcome, writes)).map(|said| self.ended(said))
    }

    /// Like [`Claim::complete_with`], without blocking.
    pub async fn complete_with_async(&self, outcome: &Outcome, writes: Writes) -> Result<Written> {
        self.ask_async(self.complete_act(outcome, writes)).await.map(|said| self.ended(said))
    }

    /// Says that no effect happened: the key is new again, if this was the only attempt and nothing
    /// was recorded. Otherwise like [`abandon`](Self::abandon).
    pub fn release(&self) -> Result<()> {
        self.say_last(Act::Release)
    }

    /// Like [`Claim::release`], without blocking.
    pub async fn release_async(&self) -> Result<()> {
        self.say_last_async(Act::Release).await
    }

    /// Says that this attempt ended without an outcome: its lease ends now, what it recorded stays,
    /// and the abandoned policy decides what follows.
    pub fn abandon(&self) -> Result<()> {
        self.say_last(Act::Abandon)
    }

    /// Like [`Claim::abandon`], without blocking.
    pub async fn abandon_async(&self) -> Result<()> {
        self.say_last_async(Act::Abandon).await
    }

    /// Says that the outcome is not known: nobody may run it until a person resolves it, or this
    /// owner finds out and completes it after all.
    pub fn hold(&self) -> Result<()> {
        self.say_last(Act::Hold { reason: HoldReason::Owner })
    }

    /// Like [`Claim::hold`], without blocking.
    pub async fn hold_async(&self) -> Result<()> {
        self.say_last_async(Act::Hold { reason: HoldReason::Owner }).await
    }

    /// Says that this attempt ended without an outcome, and that no try before this instant can succeed.
    pub(crate) fn postpone(&self, until_ms: Millis) -> Result<()> {
        self.say_last(Act::Postpone { until_ms })
    }

    /// Whether its owner has said its last word.
    pub(crate) fn is_over(&self) -> bool {
        self.running.shared.is_over(&self.place)
    }

    /// Says what ends this attempt; after it nothing is renewed.
    pub(crate) fn say_last(&self, act: Act) -> Result<()> {
        self.say(act).map(|_| self.running.shared.end(&self.place))
    }

    pub(crate) async fn say_last_async(&self, act: Act) -> Result<()> {
        self.say_async(act).await.map(|_| self.running.shared.end(&self.place))
    }

    /// What ended this attempt, unless a conflict means that it goes on.
    fn ended(&self, said: Written<OwnerAnswer>) -> Written {
        said.map(|_| self.running.shared.end(&self.place))
    }

    /// Rings after this span, without a thread that waits for it.
    pub(crate) fn bell_after(&self, span: Duration) -> Ringing {
        self.running.shared.bell_after(span)
    }

    pub(crate) fn loss_bell(&self) -> Ringing {
        self.running.shared.loss_bell(&self.place)
    }

    /// Says what brings no writes.
    fn say(&self, act: Act) -> Result<OwnerAnswer> {
        self.ask(act).and_then(without_writes)
    }

    async fn say_async(&self, act: Act) -> Result<OwnerAnswer> {
        self.ask_async(act).await.and_then(without_writes)
    }

    fn ask(&self, act: Act) -> Result<Written<OwnerAnswer>> {
        // Asked before any lock: in a forked child one may be held for ever.
        self.running.shared.check()?;
        let digest = codec::digest(&act)?;
        let lane = self.lane()?;
        let mut seq = 0;
        // Numbered when it goes to the writer, so that numbers reach it in order.
        let reply = self.running.shared.ask(lane, &self.id, || {
            let mut said = self.said.lock();
            seq = said.number(&act, digest);
            (self.command(act, digest, seq), said)
        });
        self.hear(seq, reply.and_then(|reply| reply.answer))
    }

    async fn ask_async(&self, act: Act) -> Result<Written<OwnerAnswer>> {
        self.running.shared.check()?;
        let digest = codec::digest(&act)?;
        let lane = self.lane()?;
        let (seq, taker) = {
            let mut said = self.said.lock();
            let seq = said.number(&act, digest);
            (seq, self.running.shared.ask_later(lane, &self.id, self.command(act, digest, seq))?)
        };
        let reply = taker.await;
        self.hear(seq, reply.map_or_else(|| Err(crate::store::lost()), |reply| reply.answer))
    }

    fn lane(&self) -> Result<Lane> {
        let place = Place::take(&self.waiting).inspect_err(|_| self.running.shared.stats.owner_busy())?;
        Ok(Lane::Owner(place))
    }

    /// Says it through a transaction, in the order of what this claim says.
    pub(crate) fn say_by(
        &self,
        act: Act,
        decide: impl FnOnce(Command) -> Result<Answer>,
    ) -> Result<Written<OwnerAnswer>> {
        let digest = codec::digest(&act)?;
        let seq = self.said.lock().number(&act, digest);
        // Its answer counts only once the transaction has committed; said again before that, it is the same.
        match decide(self.command(act, digest, seq))? {
            Answer::Owner(answer) => Ok(Written::Done(answer)),
            Answer::Conflict(conflict) => Ok(Written::Conflict(conflict)),
            _ => Err(Error::misdelivered("an owner")),
        }
    }

    /// Whether it was won in this store.
    pub(crate) fn is_of(&self, running: &Arc<Running>) -> bool {
        Arc::ptr_eq(&self.running, running)
    }

    fn hear(&self, seq: u64, answer: Result<Answer>) -> Result<Written<OwnerAnswer>> {
        // Any other failure may be that of a command asked again which was applied before: it keeps
        // its number until a decision is heard.
        let is_decided = match &answer {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Invalid),
        };
        if is_decided {
            self.said.lock().heard(seq);
        }
        match answer? {
            Answer::Owner(answer) => Ok(Written::Done(answer)),
            Answer::Conflict(conflict) => Ok(Written::Conflict(conflict)),
            _ => Err(Error::misdelivered("an owner")),
        }
    }

    fn command(&self, act: Act, digest: [u8; 16], seq: u64) -> Command {
        Command::Owner(OwnerCommand { token: self.won.token, seq, digest, act })
    }

    pub(crate) fn checkpoint_act(&self, point: &str, data: &[u8], writes: Writes) -> Act {
        Act::Checkpoint { name: point.into(), data: Blob::from(data), met: self.met(), writes }
    }

    fn met(&self) -> u32 {
        self.met.load(Ordering::Acquire)
    }

    fn begin_act(&self, step: &str, limit: Duration, in_doubt: InDoubt) -> Act {
        let (limit_ms, met) = (Millis::from_duration(limit), self.met());
        Act::BeginEffect(BeginEffect { name: step.into(), limit_ms, in_doubt, met })
    }

    pub(crate) fn complete_act(&self, outcome: &Outcome, writes: Writes) -> Act {
        let outcome = outcome.clone().bounded(self.running.shared.body_len_max());
        Act::Complete { outcome, met: self.met(), writes }
    }

    /// The count of met steps goes on behind the place a step was found at.
    fn expect_effect(&self, answer: OwnerAnswer) -> Result<EffectAnswer> {
        let OwnerAnswer::Effect(answer) = answer else {
            return Err(Error::misdelivered("a step"));
        };
        match &answer {
            EffectAnswer::Done { place, .. } | EffectAnswer::Refused { place, .. } => {
                self.met.store(place.saturating_add(1), Ordering::Release);
            }
            EffectAnswer::Run { place, .. } | EffectAnswer::Reconcile { place } => {
                self.met.store(*place, Ordering::Release);
            }
            EffectAnswer::Settling { .. } | EffectAnswer::Held(_) => {}
        }
        Ok(answer)
    }

    /// The store's own renewals keep pace with a lease of another length.
    fn renewed(&self, lease_ms: Option<Millis>, answer: &OwnerAnswer) -> Result<Option<Millis>> {
        let &OwnerAnswer::Renewed { lease_until_ms } = answer else {
            return Err(Error::misdelivered("a renewal"));
        };
        self.running.keep_renewed(&self.id, &self.place, lease_ms);
        Ok(lease_until_ms)
    }

    fn met_one_more(&self, was_sent: bool) {
        if was_sent {
            self.met.fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn heard(said: Written<OwnerAnswer>) -> Written {
    said.map(drop)
}

fn without_writes(said: Written<OwnerAnswer>) -> Result<OwnerAnswer> {
    match said {
        Written::Done(answer) => Ok(answer),
        Written::Conflict(_) => Err(Error::misdelivered("a command without writes")),
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({}, token {}, attempt {})", self.id.short_hash(), self.won.token, self.won.attempt)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.running.stop_renewing(&self.place);
    }
}

impl Said {
    /// The number this command goes under: its old one if it is the unheard command asked again.
    fn number(&mut self, act: &Act, digest: [u8; 16]) -> u64 {
        if matches!(act, Act::Renew { .. }) {
            return 0;
        }
        match self.unheard {
            Some((seq, unheard)) if unheard == digest => seq,
            _ => {
                self.seq = self.seq.saturating_add(1);
                self.unheard = Some((self.seq, digest));
                self.seq
            }
        }
    }

    fn heard(&mut self, seq: u64) {
        if self.unheard.is_some_and(|(unheard, _)| unheard == seq) {
            self.unheard = None;
        }
    }
}
