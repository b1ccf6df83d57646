// Package authn finds out who makes a request: from the client certificate of the TLS connection or from a
// bearer token, for gRPC (Unary, Stream) and for HTTP (Middleware) alike. The identity then travels in the
// context only (WithUser, UserFrom).
//
// Guarantees: credentials that are given and wrong are refused with 401 and the reason, they never become
// an anonymous request; without credentials only the open paths are served, as user system:anonymous. The
// identity is read from nothing but the TLS connection and the authorization header, which is taken out
// before the handler sees the request. Tokens are kept and compared as hashes.
//
// It does not decide what a user may do; that is the authorizer's work.
package authn
