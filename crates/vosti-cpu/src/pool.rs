//! Worker threads that run one closure together and meet at barriers.
//!
//! A barrier spins for a while, because the other workers are usually microseconds behind, and then parks, because a spinning
//! thread starves the thread it waits for if both share a core. Results never depend on the number of workers: they only
//! divide independent work.
//! Read next: [`crate::device`].

use std::io::{Error, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vosti_tile::numerics::FloatMode;

/// The most workers of a device. With far more, a thread may start and then find no memory for its stack guard, which ends the
/// process.
pub const THREADS_MAX: usize = 1024;

/// How long a thread spins before it parks.
const SPIN: Duration = Duration::from_micros(20);

/// A counter that threads wait on: spin, then park.
#[derive(Default)]
struct Event {
    generation: AtomicUsize,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Event {
    fn advance(&self) {
        self.generation.fetch_add(1, SeqCst);
        self.nudge();
    }

    /// Wakes parked threads, so that they check `stop` again.
    fn nudge(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    /// Returns once the generation differs from `seen` or `stop` is set; calls `meanwhile` while it spins.
    fn wait(&self, seen: usize, stop: &AtomicBool, mut meanwhile: impl FnMut()) {
        let over = || self.generation.load(SeqCst) != seen || stop.load(SeqCst);
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                if over() {
                    return;
                }
                meanwhile();
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                break;
            }
        }
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        self.sleepers.fetch_add(1, SeqCst);
        while !over() {
            guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

type Job = *const (dyn Fn(&Worker<'_>) + Sync);

struct Shared {
    threads: usize,
    start: Event,
    job: Mutex<Option<SendJob>>,
    meet: Event,
    arrived: AtomicUsize,
    failed: AtomicBool,
    quit: AtomicBool,
}

#[derive(Clone, Copy)]
struct SendJob(Job);
// SAFETY: the closure is Sync, and `Pool::run` outlives every use of the pointer.
unsafe impl Send for SendJob {}

/// One thread's view of a running job.
pub struct Worker<'a> {
    /// `0..threads`; the caller of [`Pool::run`] is 0.
    pub index: usize,
    shared: &'a Shared,
}

impl Worker<'_> {
    /// Returns when every worker has called it. Writes before the barrier are visible to all workers after it.
    pub fn barrier(&self) {
        self.barrier_while(|| ());
    }

    /// A barrier that calls `meanwhile` repeatedly while it waits. The call must be short.
    pub fn barrier_while(&self, meanwhile: impl FnMut()) {
        let shared = self.shared;
        if shared.threads == 1 {
            return;
        }
        let seen = shared.meet.generation.load(SeqCst);
        if shared.arrived.fetch_add(1, SeqCst) + 1 == shared.threads {
            shared.arrived.store(0, SeqCst);
            shared.meet.advance();
        } else {
            shared.meet.wait(seen, &shared.failed, meanwhile);
        }
        if shared.failed.load(SeqCst) {
            std::panic::resume_unwind(Box::new("another worker failed"));
        }
    }
}

/// A worker panicked; every later job fails too.
#[derive(Debug, thiserror::Error)]
#[error("a worker of the CPU device panicked: this is a bug, restart the process and report it")]
pub struct WorkerPanicked;

/// Worker threads. Dropping it ends them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `threads` workers, the caller of [`Pool::run`] included, at most [`THREADS_MAX`].
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        if threads > THREADS_MAX {
            let why = format!("{threads} worker threads are more than {THREADS_MAX}");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        let shared = Arc::new(Shared {
            threads,
            start: Event::default(),
            job: Mutex::new(None),
            meet: Event::default(),
            arrived: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            quit: AtomicBool::new(false),
        });
        let mut pool = Self { shared: shared.clone(), threads: Vec::new() };
        for index in 1..threads {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(format!("vosti-cpu-{index}"));
            let started = thread.spawn(move || serve(&shared, index)).map_err(|error| {
                let why =
                    format!("worker thread {} of {threads} cannot be started ({error}): ask for fewer", index + 1);
                Error::new(error.kind(), why)
            });
            pool.threads.push(started?);
        }
        Ok(pool)
    }

    /// Workers, the caller included.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `job` once on every worker and returns when all are done.
    pub fn run(&mut self, job: &(dyn Fn(&Worker<'_>) + Sync)) -> Result<(), WorkerPanicked> {
        if self.shared.failed.load(SeqCst) {
            return Err(WorkerPanicked);
        }
        // SAFETY: only the lifetime changes. The last barrier below is passed after every worker is done
        // with the closure; if one failed, `failed` keeps any later job from being taken up.
        let erased: Job = unsafe { std::mem::transmute::<*const (dyn Fn(&Worker<'_>) + Sync + '_), Job>(job) };
        if self.shared.threads > 1 {
            *self.shared.job.lock().unwrap_or_else(|e| e.into_inner()) = Some(SendJob(erased));
            self.shared.start.advance();
        }
        work(&self.shared, 0, job);
        if self.shared.failed.load(SeqCst) {
            // The others leave at their next barrier; the closure's borrows must outlive them.
            self.stop();
            return Err(WorkerPanicked);
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.shared.quit.store(true, SeqCst);
        self.shared.start.advance();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One worker's share of one job, and the barrier that ends it.
fn work(shared: &Shared, index: usize, job: &(dyn Fn(&Worker<'_>) + Sync)) {
    let _mode = FloatMode::set();
    let worker = Worker { index, shared };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        job(&worker);
        worker.barrier();
    }));
    if outcome.is_err() {
        shared.failed.store(true, SeqCst);
        shared.meet.nudge();
    }
}

fn serve(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        shared.start.wait(seen, &shared.quit, || ());
        if shared.quit.load(SeqCst) {
            return;
        }
        seen += 1;
        let job = *shared.job.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(SendJob(job)) = job {
            // SAFETY: `Pool::run` waits for the job's last barrier (or joins this thread) before it returns.
            work(shared, index, unsafe { &*job });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_runs_every_job_and_barriers_order_their_writes() {
        for threads in [1, 2, 3, 5] {
            let mut pool = Pool::new(threads).unwrap();
            for round in 0..200 {
                let cells: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|worker| {
                    for step in 1..=5 {
                        cells[worker.index].store(step, SeqCst);
                        worker.barrier();
                        assert!(cells.iter().all(|c| c.load(SeqCst) >= step), "round {round}");
                        worker.barrier();
                    }
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn a_panicking_worker_is_an_error_not_a_hang() {
        for bad in [0, 1] {
            let mut pool = Pool::new(2).unwrap();
            let run = pool.run(&|worker| {
                assert!(worker.index != bad, "expected by the test");
                worker.barrier();
            });
            assert!(run.is_err());
            assert!(pool.run(&|_| ()).is_err());
        }
    }

    #[test]
    fn more_workers_than_can_be_are_an_error() {
        assert!(Pool::new(THREADS_MAX + 1).is_err_and(|error| error.kind() == ErrorKind::InvalidInput));
        assert!(Pool::new(usize::MAX).is_err());
    }

    #[test]
    fn workers_flush_denormals() {
        let mut pool = Pool::new(3).unwrap();
        pool.run(&|_| {
            assert_eq!(std::hint::black_box(f32::MIN_POSITIVE) * std::hint::black_box(0.5), 0.0);
        })
        .unwrap();
    }
}
