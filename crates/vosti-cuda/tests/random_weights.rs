//! Random weights that the GPU makes itself equal the host's, to the bit: `uniform.ptx` is executed thread by thread here,
//! and assembled for every target. If the driver does not compile it, or it makes other numbers, the host's weights are
//! uploaded.

use std::ops::Range;
use std::sync::Arc;
use vosti_cuda::driver::Driver;
use vosti_cuda::uniform::{Maker, PTX};
use vosti_cuda::{Config, CudaDevice, TensorData, Uniform, WeightCache, WeightError, Weights};
use vosti_engine::{Engine, Event, Policy, Request, Sampling};
use vosti_kernels::Admitted;
use vosti_model::{ModelPlan, Recipe};
use vosti_stand_in::{StandIn, TARGET, cubins, plan};

/// Random weights of a plan; a device may make its matrices.
struct Random<'a> {
    plan: &'a ModelPlan,
    told: bool,
}

impl Random<'_> {
    fn matrix(&self, name: &str) -> bool {
        matches!(self.plan.weights[name].recipe, Recipe::Matrix { .. })
    }
}

impl Weights for Random<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(self.plan.weights[name].shape())
    }
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let width: usize = self.plan.weights[name].shape()[1..].iter().product();
        let (numbers, indices) = (Uniform::named(name, 0.3), rows.start * width..rows.end * width);
        Ok(match self.matrix(name) {
            true => TensorData::Bf16(indices.map(|i| numbers.bf16(i)).collect()),
            false => TensorData::F32(indices.map(|i| numbers.at(i)).collect()),
        })
    }
    fn made(&self, name: &str) -> Option<Uniform> {
        (self.told && self.matrix(name)).then(|| Uniform::named(name, 0.3))
    }
}

fn compiling() -> StandIn {
    let mut driver = StandIn::fast();
    driver.ptx = true;
    driver
}

#[test]
fn every_element_is_the_hosts_whatever_the_seed_and_the_scale() {
    let mut driver = compiling();
    let maker = Maker::new(&mut driver);
    let numbers = [
        Uniform::named("layers.0.qkv", 0.02),
        Uniform { seed: 0, scale: 1.0 },
        Uniform { seed: u64::MAX, scale: 4.0 },
        Uniform { seed: 1 << 63, scale: -1e-30 },
    ];
    // Some numbers are halfway between two of BF16, so that rounding to even is tested.
    let ties = (0..60_000).filter(|i| numbers[1].at(*i).to_bits() & 0xffff == 0x8000).count();
    assert!(ties > 8, "{ties}");
    for (numbers, count) in numbers.into_iter().zip([1, 60_000, 255, 64]) {
        // One more element, which must stay untouched.
        let at = driver.allocate(count as u64 * 2 + 2).unwrap();
        driver.zero(at, count as u64 * 2 + 2).unwrap();
        assert!(maker.make(&mut driver, at, count, numbers).unwrap());
        let mut bytes = vec![1; count * 2 + 2];
        driver.download(&mut [(at, &mut bytes)]).unwrap();
        let made: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|two| u16::from_le_bytes(*two)).collect();
        let wanted: Vec<u16> = (0..count).map(|i| numbers.bf16(i)).chain([0]).collect();
        assert_eq!(made, wanted, "{numbers:?}");
    }
}

/// After each change of the text the numbers are wrong or the text does not compile, so the host's numbers are used.
#[test]
fn a_text_that_makes_something_else_is_seen() {
    let changes = [
        ("add.s64 %d6, %d5, 1;", "add.s64 %d6, %d5, 2;"),
        ("0x94d049bb133111eb", "0x94d049bb133111ea"),
        ("shr.u64 %d7, %d6, 27;", "shr.u64 %d7, %d6, 28;"),
        ("0f34000000", "0f34800000"),
        ("add.u32 %r5, %r5, 0x7fff;", "add.u32 %r5, %r5, 0x6fff;"),
        ("shl.b64 %d8, %d5, 1;", "shl.b64 %d8, %d5, 2;"),
        ("setp.ge.u64", "setp.lt.u64"),
        ("ld.param.u64 %d4, [scale];", "ld.param.u64 %d4, [seed];"),
        ("cvt.u16.u32 %h1, %r5;", "cvt.u16.u32 %h2, %r5;"),
        ("DONE:", "END:"),
    ];
    for (from, to) in changes {
        let text = PTX.replace(from, to);
        assert_ne!(text, PTX, "{from}");
        let numbers = Uniform::named("w", 0.3);
        let mut driver = compiling();
        // Nothing where nothing was stored.
        let at = driver.allocate(4096).unwrap();
        driver.zero(at, 4096).unwrap();
        let made = Maker::of(&mut driver, &text).make(&mut driver, at, 700, numbers);
        assert!(!matches!(made, Ok(true)), "{to} is not seen");
    }
}

#[test]
fn a_device_makes_its_matrices_or_takes_the_hosts() {
    let plan = plan("tests/tiny/llama/config.json", "cpu", None);
    let device = |driver: StandIn, told: bool| {
        let cache = Arc::new(WeightCache::new(driver.another().unwrap()));
        let config = Config { weights: Some(cache.clone()), ..Config::new(16, 8, vec![4; plan.program.groups.len()]) };
        let random = Random { plan: &plan, told };
        let (program, admitted) = (&plan.program, Admitted::unproved(&plan.bindings).unwrap());
        let device = CudaDevice::new(driver, TARGET, program, &admitted, &cubins(&plan), &random, config).unwrap();
        let mut engine = Engine::new(device, program.clone(), Policy::default()).unwrap();
        engine.submit(Request::new((0..9).collect(), Sampling::greedy(3))).unwrap();
        let mut rows: Vec<Vec<u32>> = vec![];
        let mut note = |event: Event<'_>| {
            if let Event::Token { logits: Some(row), .. } = event {
                rows.push(row.iter().map(|x| x.to_bits()).collect());
            }
        };
        engine.run_until_idle(&mut note).unwrap();
        (rows, cache.made())
    };
    let (wanted, none) = device(compiling(), false);
    let (made, bytes) = device(compiling(), true);
    let (uploaded, nothing) = device(StandIn::fast(), true);
    assert!(wanted.len() == 3 && made == wanted && uploaded == wanted);
    assert!(bytes > 0 && none == 0 && nothing == 0);
}

#[test]
fn it_assembles_for_every_target() {
    vosti_stand_in::assembles(PTX);
}
