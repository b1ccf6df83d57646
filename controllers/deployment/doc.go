// Package deployment is the controller of Deployments. Each template of a Deployment has a ReplicaSet, named after it;
// the controller makes the one of the newest template and scales all of them, step by step (package rollout decides).
// The pods are those of the ReplicaSets.
//
//	            ┌──────── a step: make, scale or remove sets ◄───────┐
//	            ▼                                                    │
//	write the status ──► sets change ──► caches have all that was written
//
// What it guarantees: one step is judged by sets as they are after the one before, also after those of a controller
// that was killed in the midst of it. A set is made once: its name is made of the template, and a name that another
// one has taken makes the next name another (collisionCount). Sets are written by compare-and-swap, and removed only
// as they were judged: without pods.
//
// What it does not do: it makes and deletes no pods.
package deployment
