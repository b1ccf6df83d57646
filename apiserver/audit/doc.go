// Package audit writes down who asked the API for what, as kube-apiserver does: a policy says which requests, and how
// much of them (Policy, in the words of audit.k8s.io/v1); each stage of a request that it wants is an Event, one line
// of JSON; a Log takes the lines without ever making a request wait, and a File keeps them, within bounds.
//
// Guarantees:
//   - A request never waits for the disk. Lines wait in a buffer of a fixed size, and one that finds no room is lost:
//     counted by a metric, told in the server's log, and told in the audit by a line that says how many are missing.
//   - What an administrator must find (Record.Act: forced deletions, break-glass, impersonation, exec, attach,
//     port-forward) is recorded whatever the policy says, has room of its own in the buffer, and is named in the
//     server's log when it is lost nevertheless.
//   - What Secrets hold and the text of tokens are never written, at no level.
//   - Without a policy nothing of this runs: there are no Records, and the methods of a nil Record do nothing.
//
// Use: ParsePolicy, OpenFile, NewLog; Log.HTTP or Log.Begin for each request; From finds the Record again.
//
// What an event does not say: which headers came with a request, and what X-Forwarded-For claims. The source is the
// other end of the connection.
package audit
