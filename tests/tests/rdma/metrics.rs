//! What whoever watches the target is told of a session over RDMA: counts, as metrics.

use std::time::Duration;

use iser_transport::sim::Weather;
use iser_transport::{Initiator, Opened, QueuePair};
use management::exposition::Exposition;

use crate::host::{BLOCK, Host, Served};

#[tokio::test(start_paused = true)]
async fn what_goes_over_rdma_is_counted_as_that() {
    let (served, at_initiator) = Served::begin(1, Weather::default());
    let mut host = Host::log_in(Initiator::new(at_initiator, 64)).await;
    let nothing = Opened::default;
    assert_eq!(host.command(&[0; 6], nothing()).await.0, 2, "a unit attention");
    let data = [0x5a; 4 * BLOCK];
    for at in [0, 4] {
        let opened = Opened {
            data_out: data.to_vec(),
            ..Opened::default()
        };
        let cdb = [0x2a, 0, 0, 0, 0, at, 0, 0, 4, 0];
        assert_eq!(host.command(&cdb, opened).await.0, 0);
    }
    for _ in 0..3 {
        let opened = Opened {
            room: 8 * BLOCK,
            ..Opened::default()
        };
        let (status, came) = host.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0], opened).await;
        assert_eq!((status, came), (0, vec![0x5a; 8 * BLOCK]));
    }

    let over = ["iser", "tcp"].map(|transport| served.node.connections_over(transport));
    assert_eq!(over, [1, 0]);
    let mut exposition = Exposition::default();
    exposition.node(&served.node);
    let text = exposition.into_text();
    for line in [
        r#"lunaport_transport_commands_total{transport="iser",op="read"} 3"#,
        r#"lunaport_transport_commands_total{transport="iser",op="write"} 2"#,
        r#"lunaport_transport_commands_total{transport="iser",op="other"} 1"#,
        r#"lunaport_transport_bytes_total{transport="iser",op="read"} 12288"#,
        r#"lunaport_transport_bytes_total{transport="iser",op="write"} 4096"#,
        r#"lunaport_logins_total{transport="iser",result="success"} 1"#,
        r#"lunaport_sessions{target="iqn.2026-11.org.example:a",transport="iser"} 1"#,
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(r#"transport="tcp""#), "{text}");
    host.initiator.queue_pair().disconnect();
    served.ended_within(Duration::from_secs(1)).await;
}
