//! The smallest runtime there is: futures polled on the calling thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, which sleeps while there is nothing to poll.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs siblings side by side, all of them on this thread; returns their outputs in order.
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut siblings: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    block_on(std::future::poll_fn(|context| {
        let mut all_ready = true;
        for (future, output) in &mut siblings {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => all_ready = false,
                }
            }
        }
        if all_ready { Poll::Ready(()) } else { Poll::Pending }
    }));
    siblings.into_iter().filter_map(|(_, output)| output).collect()
}

/// Lets every sibling run once before going on.
pub async fn yield_now() {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0 {
                return Poll::Ready(());
            }
            self.0 = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Yield(false).await;
}
