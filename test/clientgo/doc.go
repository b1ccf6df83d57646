// Package clientgo runs Kubernetes' own client library against a whole cluster in virtual time: informers while
// connections break, history is compacted and the server is restarted; typed clients and informers of every kind;
// leader election, events, retries and apply configurations, as programs use them.
//
// There are no sockets: each test has a cluster in its bubble (testing/synctest), and client-go gets its transport.
// Connections are cut at places that a seed decides, which the test prints.
package clientgo
