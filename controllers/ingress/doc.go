// Package ingress is the controller that serves Ingresses: it makes routes and certificates of them, and has requests
// that arrive at its listeners proxied to the endpoints of their Services (package front). Package route says which
// rule a request is for.
//
// It serves Ingresses of classes whose controller is monoplane.dev/ingress. The class monoplane is made at the start
// where it is missing, as the default one where there is none.
//
// Guarantees: a change of an Ingress, a class, a Secret, a Service or its EndpointSlices counts within some hundredths
// of a second, for requests that arrive then; no request is lost for it. A change of endpoints counts at the same cost
// however many Ingresses there are; one of an Ingress costs time in proportion to all of them. The status says where
// an Ingress is reached once it is. Of two rules that say the same that of the older Ingress counts, and the younger
// one has an event; so have backends that cannot be served and Secrets that are missing or wrong.
//
// What it does not do: it keeps no sessions (sessionAffinity of Services does not count), speaks no TLS to endpoints,
// and reads no annotations but kubernetes.io/ingress.class. Resource backends and Services of type ExternalName are
// refused: whoever may write a Service would choose what this machine connects to.
package ingress
