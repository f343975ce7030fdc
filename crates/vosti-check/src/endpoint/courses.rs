//! The courses: the ways in which requests are sent. A request runs alone, again, after others, beside others, beside copies of
//! itself.

use super::EndpointOptions;
use super::client::{Asked, Client, Transcript};
use super::report::Course;
use crate::CheckError;
use crate::prompts::Random;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vosti_engine::progress::Progress;

/// A question: a prompt, greedily or with a seed.
#[derive(Clone, Debug)]
struct Question {
    prompt: String,
    asked: Asked,
}

struct Suite<'a> {
    client: &'a Client,
    options: &'a EndpointOptions,
    progress: &'a dyn Progress,
    done: Cell<usize>,
}

/// Runs all courses. The first answers are the references of the other courses.
pub fn run(client: &Client, options: &EndpointOptions, progress: &dyn Progress) -> Result<Vec<Course>, CheckError> {
    let suite = Suite { client, options, progress, done: Cell::new(0) };
    let known = suite.questions("known");
    let requests = known.len() * (5 + 2 * options.together.len()) + COPIES * COPIED_MAX.min(known.len());
    progress.stage("asking", requests as u64);

    let reference = suite.ask(&known, 1)?.answers;
    let mut courses = vec![suite.course("alone, again", &known, &reference, 1)?];
    courses.push(suite.after_relatives(&known, &reference)?);
    for &together in &options.together {
        let name = format!("{together} at once");
        let mut course = Course::new(&name);
        for turn in 0..2 {
            let order = Random::new(options.seed, &format!("{name}/{turn}")).order(known.len());
            let shuffled: Vec<Question> = order.iter().map(|i| known[*i].clone()).collect();
            let round = suite.ask(&shuffled, together)?;
            course.saw(&round);
            order.iter().zip(&round.answers).for_each(|(i, answer)| course.compare(&reference[*i], answer));
        }
        courses.push(course);
    }
    courses.push(suite.copies(&known, &reference)?);
    courses.push(suite.first_seen_in_company()?);
    Ok(courses)
}

/// Copies of one request at the same time.
const COPIES: usize = 8;
/// Most requests of which copies are made.
const COPIED_MAX: usize = 4;

/// The answers to several questions.
pub struct Round {
    pub answers: Vec<Transcript>,
    /// Most requests that were in flight at once.
    pub in_flight_max: usize,
    pub seconds: f64,
}

impl Suite<'_> {
    /// Prompts of lengths from one sentence to several pages, each greedy and sampled.
    fn questions(&self, label: &str) -> Vec<Question> {
        let of = |i: usize| {
            let words = [12, 400, 40, 90, 160, 25, 250, 64][i % 8];
            let prompt = text(&mut Random::new(self.options.seed, &format!("{label} {i}")), words);
            let seed = self.options.seed.wrapping_mul(1000).wrapping_add(i as u64);
            [0.0, 0.8].map(|temperature| Question {
                prompt: prompt.clone(),
                asked: Asked { tokens: self.options.tokens, temperature, seed },
            })
        };
        (0..self.options.prompts).flat_map(of).collect()
    }

    fn course(
        &self,
        name: &str,
        questions: &[Question],
        reference: &[Transcript],
        together: usize,
    ) -> Result<Course, CheckError> {
        let round = self.ask(questions, together)?;
        let mut course = Course::new(name);
        course.saw(&round);
        reference.iter().zip(&round.answers).for_each(|(a, b)| course.compare(a, b));
        Ok(course)
    }

    /// Each question after another one with the same beginning and another end: a cache may have a part of its prompt.
    fn after_relatives(&self, known: &[Question], reference: &[Transcript]) -> Result<Course, CheckError> {
        let mut course = Course::new("after a relative");
        for (i, question) in known.iter().enumerate() {
            let half = question.prompt.char_indices().map(|(at, _)| at).nth(question.prompt.chars().count() / 2);
            let end = text(&mut Random::new(self.options.seed, &format!("relative {i}")), 30);
            let prompt = format!("{} {end}", &question.prompt[..half.unwrap_or(0)]);
            let relative = Question { prompt, asked: question.asked };
            let round = self.ask(&[relative, question.clone()], 1)?;
            course.saw(&round);
            course.compare(&reference[i], &round.answers[1]);
        }
        Ok(course)
    }

    /// Several copies of one question at the same time.
    fn copies(&self, known: &[Question], reference: &[Transcript]) -> Result<Course, CheckError> {
        let mut course = Course::new(&format!("{COPIES} copies at once"));
        for (question, reference) in known.iter().zip(reference).take(COPIED_MAX) {
            let round = self.ask(&vec![question.clone(); COPIES], COPIES)?;
            course.saw(&round);
            round.answers.iter().for_each(|answer| course.compare(reference, answer));
        }
        Ok(course)
    }

    /// New questions, first beside others with a cold cache, then alone with a warm one.
    fn first_seen_in_company(&self) -> Result<Course, CheckError> {
        let fresh = self.questions("fresh");
        let together = self.options.together.iter().copied().max().unwrap_or(8);
        let first = self.ask(&fresh, together)?;
        let mut course = self.course("new, in company", &fresh, &first.answers, 1)?;
        course.saw(&first);
        Ok(course)
    }

    /// Asks all questions, `together` of them at a time, each beginning when another ends.
    fn ask(&self, questions: &[Question], together: usize) -> Result<Round, CheckError> {
        let start = Instant::now();
        let crowd = Crowd::new(self.client, questions);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..together.min(questions.len())).map(|_| scope.spawn(|| crowd.work())).collect();
            // This thread reports progress while the workers ask.
            while workers.iter().any(|worker| !worker.is_finished()) {
                std::thread::sleep(Duration::from_millis(5));
                self.progress.done((self.done.get() + crowd.answered()) as u64);
                crowd.stop.fetch_or(self.progress.cancelled(), Ordering::Relaxed);
            }
            let ends = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
            // Report a refusal rather than the interruptions of other workers that it caused.
            let failed: Vec<CheckError> = ends.filter_map(Result::err).collect();
            let refusal = failed.iter().position(|error| !matches!(error, CheckError::Interrupted));
            failed.into_iter().nth(refusal.unwrap_or(0)).map_or(Ok(()), Err)
        })?;
        self.done.set(self.done.get() + questions.len());
        let answers = crowd.answers.into_inner().expect("no worker panics").into_values().collect();
        Ok(Round { answers, in_flight_max: crowd.most.into_inner(), seconds: start.elapsed().as_secs_f64() })
    }
}

/// Threads that ask one list of questions.
struct Crowd<'a> {
    client: &'a Client,
    questions: &'a [Question],
    next: AtomicUsize,
    flying: AtomicUsize,
    /// Most that were in flight at once.
    most: AtomicUsize,
    stop: AtomicBool,
    answers: Mutex<BTreeMap<usize, Transcript>>,
}

impl<'a> Crowd<'a> {
    fn new(client: &'a Client, questions: &'a [Question]) -> Self {
        let zero = || AtomicUsize::new(0);
        let (next, flying, most) = (zero(), zero(), zero());
        Self { client, questions, next, flying, most, stop: AtomicBool::new(false), answers: Mutex::default() }
    }

    fn answered(&self) -> usize {
        self.answers.lock().expect("no worker panics").len()
    }

    /// One thread: takes the next question until none is left.
    fn work(&self) -> Result<(), CheckError> {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(question) = self.questions.get(i) else { return Ok(()) };
            if self.stop.load(Ordering::Relaxed) {
                return Err(CheckError::Interrupted);
            }
            let flying = self.flying.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(flying, Ordering::Relaxed);
            let answer = self.client.ask(&question.prompt, question.asked);
            self.flying.fetch_sub(1, Ordering::Relaxed);
            if answer.is_err() {
                // One refusal ends the round for all.
                self.stop.store(true, Ordering::Relaxed);
            }
            self.answers.lock().expect("no worker panics").insert(i, answer?);
        }
    }
}

/// Text of so many common words, in sentences, for any tokenizer and model.
fn text(random: &mut Random, words: usize) -> String {
    const WORDS: [&str; 48] = [
        "the", "a", "river", "stone", "small", "engine", "light", "reads", "writes", "of", "and", "house", "seven",
        "green", "moves", "under", "over", "city", "letter", "old", "new", "question", "answer", "because", "when",
        "people", "water", "machine", "number", "says", "that", "is", "was", "garden", "winter", "long", "road", "to",
        "from", "with", "without", "every", "some", "music", "table", "door", "opens", "closes",
    ];
    let mut out = String::new();
    for i in 0..words {
        let word = WORDS[random.below(WORDS.len())];
        let begins = i % 9 == 0;
        if i > 0 {
            out.push_str(if begins { ". " } else { " " });
        }
        let head = if begins { word[..1].to_uppercase() } else { word[..1].to_string() };
        out += &head;
        out += &word[1..];
    }
    out
}
