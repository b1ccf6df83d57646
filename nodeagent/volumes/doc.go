// Package volumes brings the volumes of pods to the node, into containers, and away again.
//
// What the agent makes for a pod lies below the pod's own directory, laid out as Kubernetes' node agent does:
//
//	<pods>/<uid>/volumes/<plugin>/<name>         a volume
//	<pods>/<uid>/volume-subpaths/<name>/<container>/<n>   what mount n of a container shows of it
//	<pods>/<uid>/volumes.json                    where each volume is, for the agent that comes back
//
// The life of a pod's volumes, as the agent sees to it:
//
//	SetUp ──► Mounts, for each start of a container ──► TearDown
//	  ▲         ▲ Refresh: what they were written from has changed
//	  └─ Rest: the node is to be empty for a while
//
// Guarantees:
//   - SetUp is idempotent: it finds what an earlier one made, and goes on where that failed. No container starts
//     before all volumes that the pod's containers mention are there.
//   - Files from config maps, secrets, tokens and fields of the pod change atomically (package atomicdir). They are
//     shown to containers for reading alone. Secrets and tokens lie in memory where the agent may mount; elsewhere
//     they lie on disk, in a directory that only the agent's user can enter.
//   - A subPath never leads out of its volume, whatever containers do meanwhile (package subpath).
//   - TearDown never removes what lies behind a mount; what cannot be unmounted is an error, and stays (package
//     mount).
//   - One operation at a time works on a pod's volumes. One that hangs, on a server that does not answer or a driver
//     that is stuck, holds up its own pod only: the others of that pod say what they wait for.
//
// A kind of volume is a plugin, a line in the table of New; between operations nothing is kept in memory but the time
// at which a pod's tokens are to be renewed.
package volumes
