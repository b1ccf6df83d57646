// Package rest is the REST front: it makes the gRPC services look like a Kubernetes API server to kubectl,
// client-go and curl.
//
// The way of a request: authenticate (a middleware that the caller gives) → route → negotiate → decode the
// body and the query → the generated gRPC-Gateway handler → the in-process connection → the service; and back:
// the message → the negotiated form (JSON, YAML, Kubernetes protobuf, Table, PartialObjectMetadata) → HTTP.
//
// Guarantees:
//   - Everything is in front of the services, never beside them: no object is read or written except through
//     the generated gateway handlers on Config.Conn, so validation, admission and authorization see every
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
