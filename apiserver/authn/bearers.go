package authn

import (
	"context"
	"errors"
	"slices"

	"monoplane.dev/apierrors"
)

// Accounts tells whose the tokens of service accounts are.
type Accounts interface {
	// Verify returns whose a token is, and for which of the audiences it is; no audiences stand for the API server. What
	// is no token of a service account has neither a user nor an error.
	Verify(ctx context.Context, token string, audiences []string) (u *User, of []string, err error)
	// Audiences returns the names of the API server.
	Audiences() []string
}

// Bearers knows all bearer tokens: those of users and those of service accounts. The nil *Bearers knows none.
type Bearers struct {
	// Tokens are those of users, for the API server; nil for none.
	Tokens *Tokens
	// Accounts knows those of service accounts; nil for none.
	Accounts Accounts
}

var errBearer = errors.New("invalid bearer token")

// User returns whose a token is, and for which of the audiences it is; no audiences stand for the API server. A token
// that is not valid is an error without the token in it, which is no API error: those mean that it could not be told.
func (b *Bearers) User(ctx context.Context, token string, audiences []string) (u *User, of []string, err error) {
	if b == nil {
		return nil, nil, errBearer
	}
	if u := b.Tokens.user(token); u != nil {
		of, err := b.ofServer(audiences)
		return u, of, err
	}
	if b.Accounts == nil {
		return nil, nil, errBearer
	}
	u, of, err = b.Accounts.Verify(ctx, token, audiences)
	if err == nil && u == nil {
		err = errBearer
	}
	return u, of, err
}

// ofServer returns those of the audiences that are names of the API server, whom the tokens of users are for.
func (b *Bearers) ofServer(audiences []string) ([]string, error) {
	var own []string
	if b.Accounts != nil {
		own = b.Accounts.Audiences()
	}
	if len(audiences) == 0 {
		return own, nil
	}
	of := slices.DeleteFunc(slices.Clone(audiences), func(a string) bool { return !slices.Contains(own, a) })
	if len(of) == 0 {
		return nil, errors.New("the token is for the API server alone")
	}
	return of, nil
}

// refusal is what a client is told whose token did not do.
func refusal(err error) error {
	var api *apierrors.Error
	if errors.As(err, &api) {
		return err
	}
	return unauthorized("%v", err)
}
