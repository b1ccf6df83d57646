// Package probe makes one attempt of a container's probe: a program run in the container, an HTTP GET, a TCP
// connection or a question to the gRPC health service. When an attempt is made and what follows from its result is
// decided elsewhere (podstate). spec: PROBE-1
//
//	result, message := probe.Run(ctx, container.GetReadinessProbe(), probe.Target{PodIP: ip, Container: c, Exec: exec})
//
// Guarantees:
//   - An attempt ends at the latest when the probe's timeoutSeconds are over, whatever the other side does, and takes
//     up no more than 10 KiB of an answer's body and 1 MiB of its headers. Only a program in the container is waited
//     for a while longer, since it is the runtime that ends it.
//   - No connection outlives Run. No proxy is used, no connection is used twice, and no certificate is verified.
//   - An attempt that was cut short by its context says Unknown: it tells nothing about the container.
//
// Results and messages are those of Kubernetes' kubelet, as test/oracle checks.
package probe
