// Package json is the runtime of the generated JSON codec: the scanner, the encoder's primitives and the
// scalar forms of Kubernetes (times, quantities, IntOrString, raw JSON). cmd/protoc-gen-monoplane writes, for
// every message, an AppendJSON and a DecodeJSON that call this package; there is no reflection.
//
// Guarantees:
//   - Output is what a Kubernetes API server writes for the same object: int64 as numbers, fields of inlined
//     structs in place, required fields even when empty, map keys sorted, <, > and & escaped.
//   - Output is always valid JSON, whatever the message holds.
//   - Input of any kind never panics. Nesting is limited to MaxDepth, reports to MaxReports.
//   - Field names are case-sensitive, null is accepted everywhere, integers are plain digits.
//   - Every report names the field by its full path, such as spec.containers[0].image.
//
// Decoding separates what is fatal (bad syntax, wrong types: Decoder.Err) from what only strict clients mind
// (unknown and duplicate fields: Decoder.Strict, worded as Kubernetes words them).
//
// It does not check apiVersion and kind (package codec does), nor does it validate values.
package json

// Value is what the generator makes of every message: a value with the Kubernetes JSON form.
type Value interface {
	// AppendJSON appends the JSON form to b, without apiVersion and kind.
	AppendJSON(b []byte) []byte
	// DecodeJSON reads the JSON form from d. Errors stay in d (see Decoder.Err).
	DecodeJSON(d *Decoder)
}
