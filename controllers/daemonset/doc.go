// Package daemonset is the controller of DaemonSets: each keeps a pod on every node that its template allows. The pods
// are for their nodes by affinity; the scheduler binds them.
//
//	caches have all that was written ──► the newest revision of the template ──► step (package plan):
//	   ▲                                     nodes without their pod get one, ended and surplus pods go;
//	   │                                     when there is nothing of that, the rolling update goes on
//	   └── pods and nodes change ◄── write the status ◄── remove revisions that are too many
//
// What it guarantees: before it judges, the caches have everything that the controller itself wrote, so that no pod is
// made or deleted twice. Without maxSurge a node has its next pod when the one before is gone. Daemons are not driven
// out by what befalls their node: cordons, pressures, and agents that fall silent are tolerated. A node whose pods
// fail again and again gets the next one after a delay that doubles up to 15 min. A template that admission refuses
// costs one request, then one after a delay that doubles up to 30 s.
//
// What it does not do: it binds no pod to a node, never forces a deletion, and leaves the pods of a DaemonSet that is
// deleted to the garbage collector.
package daemonset
