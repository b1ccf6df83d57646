package authn

import (
	"crypto/sha256"
	"crypto/subtle"
)

// maxToken is the most bytes of a token that is looked at.
const maxToken = 4096

// Tokens are bearer tokens with the users that they stand for. Only hashes are kept. Fill it before use;
// it must not be changed afterwards. The nil *Tokens holds none.
type Tokens struct {
	users map[[sha256.Size]byte]*User
}

// NewTokens returns an empty set.
func NewTokens() *Tokens { return &Tokens{users: make(map[[sha256.Size]byte]*User)} }

// Add makes token stand for a user. An empty token is never accepted.
func (t *Tokens) Add(token string, u User) {
	if token == "" {
		return
	}
	u.Groups = append(append([]string(nil), u.Groups...), AuthenticatedGroup)
	t.users[sha256.Sum256([]byte(token))] = &u
}

// user returns whom token stands for, nil when nobody. How long it takes says nothing about the tokens
// that exist: they are found by their hash.
func (t *Tokens) user(token string) *User {
	if t == nil || token == "" || len(token) > maxToken {
		return nil
	}
	given := sha256.Sum256([]byte(token))
	for hash, u := range t.users {
		if subtle.ConstantTimeCompare(hash[:], given[:]) == 1 {
			return u
		}
	}
	return nil
}
