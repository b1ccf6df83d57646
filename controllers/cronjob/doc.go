// Package cronjob is the controller of CronJobs: it makes a Job at each of the times of a schedule (package
// rules/schedule), and removes those that are no longer kept.
//
//	old Jobs go ──► the status follows the Jobs ──► is a time due? ──► make its Job ──► write the status
//	                                                     │ no
//	                                                     └──► wait for the next time, or for a Job to change
//
// What it guarantees: no time has two Jobs, whoever makes them, since a Job is named after the minute of its time.
// After times that nobody was there to meet, only the newest is met. Of a schedule that changes, the times before the
// change do not count, as long as a controller that has seen it change runs. Before it judges, its caches have what it
// wrote itself. A clock that is set is noticed within ten minutes; when it goes back, no time is met twice.
//
// What it does not do: it looks at no pods.
package cronjob
