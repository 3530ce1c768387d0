//! Who is told when its turn has come: kept as the gate's queues are, at the same spots, so that nobody is searched for.

use tidegate_core::gate::ShedReason;
use tidegate_core::queue::QueueHandle;
use tokio::sync::oneshot;

/// Tells how many are at the origin, or why it is refused.
pub(crate) type Tell = oneshot::Sender<Result<u32, ShedReason>>;

/// Those who wait, by class and spot. Memory grows with the longest queue of each class and is then reused.
#[derive(Default)]
pub(crate) struct Callers(Vec<Vec<Option<Tell>>>);

impl Callers {
    /// Somebody waits there.
    pub(crate) fn put(&mut self, spot: QueueHandle, tell: Tell) {
        let class = at_least(&mut self.0, spot.class().index());
        *at_least(class, spot.slot()) = Some(tell);
    }

    /// Nobody waits there any more: who did.
    pub(crate) fn take(&mut self, spot: QueueHandle) -> Option<Tell> {
        self.0.get_mut(spot.class().index())?.get_mut(spot.slot())?.take()
    }
}

fn at_least<T: Default>(list: &mut Vec<T>, at: usize) -> &mut T {
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    &mut list[at]
}
