// Package tokens issues the tokens of service accounts, tells whose one is, and publishes what others need in order to
// verify them: the keys and the OpenID configuration.
//
// A token is a JWT, signed with ES256 by the key of this server, whose id is in its header. It says for whom it is
// (audiences), when it expires, whose it is (namespace, name and uid of the service account) and what it is bound to
// (a pod with its node, a node or a secret), in the claims that Kubernetes has. Those that Secrets of type
// kubernetes.io/service-account-token hold have the other claims that Kubernetes has for them.
//
// Guarantees:
//   - A token is good for as long as the service account of that uid exists, and the object of that uid that it is
//     bound to. Both are looked up for every request: once a deletion was acknowledged, no token outlives it. An
//     object that waits for its finalizers is as good as deleted a minute after its time has come.
//   - The token that a Secret holds, which has no end, is good for as long as the Secret holds it and the service
//     account exists, neither of them being deleted.
//   - A signature is verified once: what a token says is remembered, by the digest of the token and in a bounded
//     number.
//   - The package neither stores nor logs tokens, and no error repeats one.
//
// It does not decide who may have a token; that is for the kind ServiceAccount.
package tokens
