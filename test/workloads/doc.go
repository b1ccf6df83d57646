// Package workloads tells what becomes of workloads as scenarios that a person can read: manifests, what is done with
// them, and the timeline of what is to be seen then. The same files run on simulated nodes in virtual time (this
// package's test), and some also over the real binary with real processes and the real kubectl (package e2e).
//
// A file of testdata is
//
//	# WORK-1: what it shows, the identifier of the specification first.
//	nodes: 3                     how many simulated nodes there are; 1 when the line is missing
//	on: fake host                host: also over the real binary; fake alone when the line is missing
//	large                        it takes minutes, and is played with -large only
//	always: 3..5 pods of web     bounds that hold at each moment once the lower one has been reached; of what has
//	always: 3.. ready of web     the label app=web; pods that are on their way out are not counted
//	-- objects --
//	manifests
//	-- script --
//	kubectl create -f -
//	      0s  deployment/web  available 0/3: r1 0/3
//	      5s  deployment/web  available 3/3: r1 3/3
//	          events  deployment/web ScalingReplicaSet
//
// A line of the script that is not indented is a step, and the indented ones below it are its timeline: how long after
// the step something was to be seen that differs from before. In virtual time one looks at the end of each second, and
// the timeline must be this one exactly; -rewrite writes down the one that was seen. Over the real binary each step
// must come to what its timeline ends with.
//
// A step ends when nothing has changed for a minute; one that begins with [10m] takes that long, with [10m, end] its
// timeline is only what there is to see at the end. Where the server was off, it begins when that is back. Steps are
//
//	kubectl ...                  create -f -, with the manifests as its input, scale, patch, delete, set image|env,
//	                             rollout pause|resume|restart|undo: with the words that kubectl knows, too
//	nothing                      time goes by
//	asleep 24h                   the server is off for so long, while the pods go on
//	awake 10m every 168h 52      so many times: the server is off, but for so long at the end of each period
//	load web 800m                the pods with the label app=web that run use so much cpu from now on, each its share;
//	                             nothing is told of apps without a load, and no longer after "load web unknown"
//	node stop|start NAME         the agent of a simulated node stops, as when the machine is lost, and starts
//
// Simulated pods behave as the annotations of package nodeagent/runtime/fake say; those that begin with
// index-N.workloads/ instead of fake.monoplane.dev/ count for the pod of a Job's index N only. An image whose name
// begins with "missing" cannot be pulled.
//
// What is to be seen of a workload:
//
//	deployment/web  available 3/4: r1 1/1, r2 2/3   ready and wanted pods of each revision; what stands in its way
//	replicaset/web  2/3                             ready and wanted pods; likewise replicationcontroller
//	statefulset/db  available 1/2: 0 r1 ready, 1 r1 starting     each pod, its revision and state
//	daemonset/log   available 1/2: n-0 r1 ready, n-1 r1 starting likewise
//	job/sum         active 2, succeeded 3, failed 1: Complete    and how it stands
//	cronjob/tick    made 2, active 1, last 2000-01-01T00:01:00Z  how many Jobs were seen, and the newest time met
//	horizontalpodautoscaler/web  3, wants 4, uses cpu 80%: TooManyReplicas    replicas, use, what limits or hinders it
//	claims          data-db-0 data-db-1                          PersistentVolumeClaims
package workloads
