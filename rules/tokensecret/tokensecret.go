// Package tokensecret has the words for Secrets that hold the token of a service account: the server checks them, a
// controller fills them in, and the server believes the token for as long as its Secret holds it.
package tokensecret

// Type is the type of such a Secret.
const Type = "kubernetes.io/service-account-token"

// The annotations that say whose token it is. The controller adds the uid.
const (
	Account = "kubernetes.io/service-account.name"
	UID     = "kubernetes.io/service-account.uid"
)

// The keys: the token, the certificate of the cluster's authority, PEM, and the namespace of the service account.
const (
	Token     = "token"
	CA        = "ca.crt"
	Namespace = "namespace"
)
