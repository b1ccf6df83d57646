// Package authn finds out who makes a request: from the client certificate of the TLS connection or from a
// bearer token, of a user or of a service account, for gRPC (Tap) and for HTTP (Middleware) alike. The identity then
// travels in the context only (WithUser, UserFrom).
//
// Guarantees: credentials that are given and wrong are refused with 401 and the reason, they never become
// an anonymous request; without credentials only the open paths are served, as user system:anonymous. The
// identity is read from nothing but the TLS connection and the authorization header, which is taken out
// before the handler sees the request. Tokens are kept and compared as hashes. A request with an
// Impersonate header is made as whom it asks for when the Impersonator lets it, and else refused: never is it made as
// whom it comes from. Over gRPC all this happens before a message is read.
//
// A connection whose client is known is told so (package gate), and one of an unknown client that it was refused.
//
// It does not decide what a user may do; that is the authorizer's work.
package authn
