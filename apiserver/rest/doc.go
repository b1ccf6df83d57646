// Package rest is the REST front: it makes the gRPC services look like a Kubernetes API server to kubectl,
// client-go and curl.
//
// The way of a request is that of ServeHTTP: authenticate → find the route → negotiate → decode the body, the path and
// the query into the request message → call the service on the in-process connection, and back: encode the message in
// the negotiated form (JSON, YAML, Kubernetes protobuf, Table, PartialObjectMetadata), which the gateway writes to the
// client.
//
// What is in the middle (gateway.go) is gRPC-Gateway without its generated code: routes are read from the
// google.api.http rules of each method's descriptor, and calls are made and forwarded by the gateway's run time.
//
// Guarantees:
//   - A method and its rule are paired by name. One that only the .proto or only the server knows keeps New from
//     working.
//   - Everything is in front of the services, never beside them: no object is read or written except by
//     the gateway on Config.Conn, so validation, admission and authorization see every
//     request (spec: OBJ-15).
//   - Every refusal is a metav1.Status with the right HTTP code; internal causes are logged, not sent.
//   - A revision of an object is encoded once for all lists and watchers (package bodycache).
//   - Bodies, headers, queries, nesting, concurrent requests and stalled clients are bounded; input never
//     panics.
//   - Clients cannot inject gRPC metadata, nor override by the query what the path or the body names.
//
// Sub-packages do one thing each: negotiate (media types), discovery, openapi, table, bodycache. The front does
// not authorize, validate or store anything; what it knows about kinds comes from their descriptors.
package rest
