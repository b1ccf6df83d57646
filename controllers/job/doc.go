// Package job is the controller of Jobs: it makes pods until enough of them have succeeded, and counts those that
// ended.
//
//	look at the Job and its pods ──► make or delete pods ──► note ended pods in the status
//	        ▲                                                          │ written
//	        └── count them, write the status ◄── take their finalizers ┘
//
// What it guarantees: a pod that ended is counted once, whenever the controller, the server or another writer
// interferes: package plan says how. Before it judges, the caches have everything that the controller itself wrote.
// When somebody else wrote the Job, such as this controller on another server, and the pods are seen as they were
// before, those that seem to be uncounted are first read live. Writes carry the uid, or the revision, of what was
// judged. Pods that may have been made without an answer are looked for. Pods that fail are replaced after a pause
// that doubles from 10 s to 10 min; pods that cannot be made are tried again after one that doubles up to 30 s.
//
// Where two servers share a store, the controllers of both may make pods at once: then some are too many, which are
// deleted, or run beside the others.
//
// A Job with n pods is looked at at most once in n ms, at most a second, however often its pods change: a look takes
// time that grows with n.
//
// What it does not do: it never forces a deletion, and leaves a Job alone that names another controller in managedBy.
package job
