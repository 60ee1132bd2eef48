//! What every store does, over every engine.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "clippy takes helpers of a test for the product"
)]

mod common;

use backstores::{
    BlockStore, BufPool, CHUNK, CacheMode, Durability, StoreErrorKind, StoreOptions, StoreSource,
};
use common::{ENGINES, SIZE, filled, on_data_thread, read, reopen, sources};

#[test]
fn what_was_written_is_read_and_the_rest_is_zero() {
    each_store(&async |store| {
        let block = store.geometry().block_size as usize;
        assert_eq!(read(store, 0, CHUNK).await, vec![0; CHUNK]);
        for (at, len, byte) in [
            (0, block, 1),
            (65_536 - 4096, 8192, 2),
            (300_000 / 4096 * 4096, CHUNK, 3),
        ] {
            let returned = store
                .write(at, filled(len, byte), Durability::Cached)
                .await
                .unwrap();
            assert_eq!(&returned[..], vec![byte; len], "the buffer comes back as it was");
            assert_eq!(read(store, at, len).await, vec![byte; len]);
        }
        let end = SIZE - block as u64;
        store
            .write(end, filled(block, 4), Durability::Stable)
            .await
            .unwrap();
        assert_eq!(read(store, end, block).await, vec![4; block]);
        assert_eq!(
            read(store, block as u64, 512.max(block)).await,
            vec![0; 512.max(block)]
        );
    });
}

#[test]
fn unmapped_and_zeroed_ranges_read_as_zeroes_and_their_neighbours_stay() {
    each_store(&async |store| {
        let len = store.geometry().block_size as usize;
        let block = len as u64;
        for round in 0..2 {
            store
                .write(0, filled(CHUNK, 9), Durability::Cached)
                .await
                .unwrap();
            store
                .write(CHUNK as u64, filled(CHUNK, 9), Durability::Cached)
                .await
                .unwrap();
            let hole = block..2 * CHUNK as u64 - block;
            match round {
                0 => store.unmap(hole).await.unwrap(),
                _ => store.write_zeroes(hole, Durability::Stable).await.unwrap(),
            }
            let mut expected = vec![0; 2 * CHUNK];
            expected[..len].fill(9);
            expected[2 * CHUNK - len..].fill(9);
            let mut content = read(store, 0, CHUNK).await;
            content.extend(read(store, CHUNK as u64, CHUNK).await);
            assert!(content == expected, "round {round}");
        }
        store.unmap(0..SIZE).await.unwrap();
        assert_eq!(read(store, 0, 4096).await, vec![0; 4096]);
        store.unmap(4096..4096).await.unwrap();
        store.write_zeroes(SIZE..SIZE, Durability::Cached).await.unwrap();
    });
}

#[test]
fn extents_cover_a_range_and_holes_read_as_zeroes() {
    each_store(&async |store| {
        store.unmap(0..SIZE).await.unwrap();
        let written = 262_144..262_144 + CHUNK as u64;
        store
            .write(written.start, filled(CHUNK, 9), Durability::Stable)
            .await
            .unwrap();
        for from in [0, 262_144, 262_144 + 65_536, SIZE - 4096] {
            let mut at = from;
            while at < SIZE {
                let extent = store.extent(at..SIZE).await.unwrap();
                assert!(at < extent.end && extent.end <= SIZE);
                assert!(extent.end.is_multiple_of(u64::from(store.geometry().block_size)));
                if !extent.mapped {
                    assert!(
                        extent.end <= written.start || written.end <= at,
                        "{at}..{} is no hole",
                        extent.end
                    );
                }
                at = extent.end;
            }
        }
        let error = store.extent(SIZE..SIZE + 4096).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::OutOfRange);
    });
}

#[test]
fn memory_and_files_tell_their_holes() {
    let dir = tempfile::tempdir().unwrap();
    let file = StoreSource::File {
        path: dir.path().join("holes"),
        size: Some(SIZE),
    };
    for source in [StoreSource::Memory { size: SIZE }, file] {
        let store = backstores::open(&source, StoreOptions::default()).unwrap();
        on_data_thread(backstores::EngineChoice::Auto, async {
            let first = async |at: u64| {
                let extent = store.extent(at..SIZE).await.unwrap();
                (extent.end, extent.mapped)
            };
            assert_eq!(first(0).await, (SIZE, false), "{source:?}");
            let buf = filled(65_536, 9);
            store.write(131_072, buf, Durability::Stable).await.unwrap();
            assert_eq!(first(0).await, (131_072, false), "{source:?}");
            assert_eq!(first(131_072).await, (196_608, true), "{source:?}");
            assert_eq!(first(196_608).await, (SIZE, false), "{source:?}");
            store.unmap(131_072..196_608).await.unwrap();
            assert_eq!(first(0).await, (SIZE, false), "{source:?}");
        });
    }
}

#[test]
fn only_what_is_in_memory_anyway_is_promised_to_be_read_without_a_medium() {
    each_store(&async |store| {
        let in_memory = store.abilities().atomic_len > 0;
        assert_eq!(store.prefetch(0..SIZE).await, in_memory);
    });
}

#[test]
fn a_key_is_erased_where_it_is_said_and_nowhere_else() {
    each_store(&async |store| {
        let has_key = store.abilities().key_erase;
        match store.erase_key().await {
            Ok(()) => assert!(has_key),
            Err(error) => assert_eq!((has_key, error.kind), (false, StoreErrorKind::NotSupported)),
        }
    });
}

#[test]
fn ranges_outside_the_store_are_refused_and_move_nothing() {
    each_store(&async |store| {
        let len = store.geometry().block_size as usize;
        let block = len as u64;
        let buf = || filled(len, 5);
        let kinds = [
            store.read(SIZE, buf()).await.unwrap_err().kind,
            store.read(u64::MAX - block + 1, buf()).await.unwrap_err().kind,
            store
                .write(SIZE, buf(), Durability::Cached)
                .await
                .unwrap_err()
                .kind,
            store.unmap(SIZE - block..SIZE + block).await.unwrap_err().kind,
            store
                .write_zeroes(SIZE - block..SIZE + block, Durability::Cached)
                .await
                .unwrap_err()
                .kind,
        ];
        assert_eq!(kinds, [StoreErrorKind::OutOfRange; 5]);
        assert_eq!(read(store, SIZE - block, len).await, vec![0; len]);
    });
}

#[test]
fn many_operations_at_once_all_end_and_give_their_memory_back() {
    each_store(&async |store| {
        let pool = BufPool::new(4 * CHUNK);
        let blocks = 0..200_u64;
        let writes = blocks.clone().map(|number| {
            let pool = &pool;
            async move {
                let mut buf = pool.acquire(4096).await;
                buf.fill(u8::try_from(number + 1).unwrap());
                store.write(number * 4096, buf, Durability::Cached).await.unwrap();
            }
        });
        futures_util::future::join_all(writes).await;
        store.flush().await.unwrap();
        let reads = blocks.map(|number| {
            let pool = &pool;
            async move {
                let buf = store.read(number * 4096, pool.acquire(4096).await).await.unwrap();
                assert!(
                    buf.iter().all(|byte| u64::from(*byte) == number + 1),
                    "block {number}"
                );
            }
        });
        futures_util::future::join_all(reads).await;
        assert_eq!(pool.stats().in_use, 0);
    });
}

#[test]
fn a_dropped_future_leaves_the_operation_its_buffer_and_the_write_arrives() {
    for engine in ENGINES {
        for (name, source, options) in sources() {
            let pool = BufPool::new(CHUNK);
            let store = source.open(options).unwrap();
            on_data_thread(engine, async {
                let mut buf = pool.acquire(CHUNK).await;
                buf.fill(6);
                let polled_once = store.write(0, buf, Durability::Cached);
                let _ = futures_util::FutureExt::now_or_never(polled_once);
                // Waits until the operation has let go of the only block.
                drop(pool.acquire(CHUNK).await);
                assert_eq!(read(&*store, 0, CHUNK).await, vec![6; CHUNK], "{name} {engine:?}");
            });
        }
    }
}

#[test]
fn leaving_a_data_thread_waits_for_its_operations() {
    for engine in ENGINES {
        for (name, source, options) in sources() {
            let pool = BufPool::new(CHUNK);
            let store = source.open(options).unwrap();
            on_data_thread(engine, async {
                for block in 0..8 {
                    let mut buf = pool.try_acquire(4096).unwrap();
                    buf.fill(1);
                    let _ = futures_util::FutureExt::now_or_never(store.write(
                        block * 4096,
                        buf,
                        Durability::Stable,
                    ));
                }
            });
            // The pool's threads owe no such promise; waiting for the whole pool is waiting for them.
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            if engine == backstores::EngineChoice::Uring && !options.protection {
                assert_eq!(pool.stats().in_use, 0, "{name}");
            }
            drop(runtime.block_on(pool.acquire(CHUNK)));
        }
    }
}

#[test]
fn operations_end_while_other_tasks_never_rest() {
    let (_, source, options) = sources().swap_remove(1);
    for engine in ENGINES {
        let store = source.open(options).unwrap();
        on_data_thread(engine, async {
            let restless = tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
            for block in 0..100 {
                store
                    .write(block * 4096, filled(4096, 1), Durability::Cached)
                    .await
                    .unwrap();
            }
            assert_eq!(read(&*store, 0, CHUNK).await, vec![1; CHUNK]);
            restless.abort();
        });
    }
}

#[test]
fn a_shrunken_file_is_out_of_range_and_not_a_short_read() {
    for engine in ENGINES {
        let (_, source, options) = sources().swap_remove(1);
        let StoreSource::File { path, .. } = &source.source else {
            panic!("the second is a file")
        };
        let store = source.open(options).unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(6144)
            .unwrap();
        on_data_thread(engine, async {
            let error = store.read(4096, filled(4096, 1)).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::OutOfRange, "{error}");
        });
    }
}

#[test]
fn a_full_ring_sends_the_rest_to_the_threads() {
    let (_, source, options) = sources().swap_remove(1);
    let store = source.open(options).unwrap();
    on_data_thread(backstores::EngineChoice::Uring, async {
        let writes = (0..3000_u64).map(|number| {
            let buf = filled(512, u8::try_from(number % 250 + 1).unwrap());
            store.write(number * 512, buf, Durability::Cached)
        });
        for result in futures_util::future::join_all(writes).await {
            result.unwrap();
        }
        for number in 0..3000_u64 {
            assert_eq!(
                u64::from(read(&*store, number * 512, 512).await[511]),
                number % 250 + 1
            );
        }
    });
}

#[test]
fn a_second_ring_or_another_runtime_is_refused() {
    on_data_thread(backstores::EngineChoice::Uring, async {
        assert!(backstores::DataThread::enter(backstores::EngineChoice::Uring).is_err());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        assert!(backstores::DataThread::enter(backstores::EngineChoice::Uring).is_err());
    });
    assert!(
        backstores::DataThread::enter(backstores::EngineChoice::Uring).is_err(),
        "no runtime at all"
    );
}

#[test]
fn a_future_begun_on_one_thread_may_end_on_another() {
    let (_, source, options) = sources().swap_remove(1);
    let store = source.open(options).unwrap();
    let mut write = store.write(0, filled(4096, 8), Durability::Cached);
    on_data_thread(backstores::EngineChoice::Uring, async {
        let _ = futures_util::poll!(&mut write);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(write).unwrap();
    assert_eq!(runtime.block_on(read(&*store, 0, 4096)), vec![8; 4096]);
}

#[test]
fn read_only_stores_refuse_every_change() {
    for (name, source, options) in sources() {
        let created = source.open(options).unwrap();
        let options = StoreOptions {
            read_only: true,
            ..options
        };
        let store = reopen(created, &source, options).unwrap();
        on_data_thread(backstores::EngineChoice::Auto, async {
            let kinds = [
                store
                    .write(0, filled(4096, 1), Durability::Cached)
                    .await
                    .unwrap_err()
                    .kind,
                store.unmap(0..4096).await.unwrap_err().kind,
                store
                    .write_zeroes(0..4096, Durability::Cached)
                    .await
                    .unwrap_err()
                    .kind,
            ];
            assert_eq!(kinds, [StoreErrorKind::ReadOnly; 3], "{name}");
            assert_eq!(read(&*store, 0, 4096).await, vec![0; 4096]);
            store.flush().await.unwrap();
        });
        assert!(store.geometry().read_only);
    }
}

#[test]
fn null_reads_zeroes_and_forgets() {
    let store = backstores::open(&StoreSource::Null { size: 1 << 50 }, StoreOptions::default()).unwrap();
    on_data_thread(backstores::EngineChoice::Auto, async {
        store
            .write(1 << 40, filled(4096, 1), Durability::Stable)
            .await
            .unwrap();
        let buf = store.read(1 << 40, filled(4096, 7)).await.unwrap();
        assert_eq!(&buf[..], vec![0; 4096]);
        store.unmap(0..1 << 50).await.unwrap();
    });
}

#[test]
fn a_cache_is_admitted_wherever_an_acknowledged_write_can_be_lost() {
    for (name, source, options) in sources() {
        let volatile = source.open(options).unwrap().geometry().volatile_cache;
        let through = options.cache == CacheMode::WriteThrough;
        match source.source {
            StoreSource::Memory { .. } => assert!(volatile, "{name}"),
            StoreSource::File { .. } => assert_eq!(volatile, !through, "{name}"),
            // Without write-through it is for the device to say.
            StoreSource::Block { .. } => assert!(!(volatile && through), "{name}"),
            StoreSource::Null { .. } => unreachable!("not among the sources"),
        }
    }
}

/// Runs a claim over every store and engine.
fn each_store(claim: &impl AsyncFn(&dyn BlockStore)) {
    for engine in ENGINES {
        for (name, source, options) in sources() {
            println!("{name}, {engine:?}");
            let store = source.open(options).unwrap();
            on_data_thread(engine, claim(&*store));
        }
    }
}
