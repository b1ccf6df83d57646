package registry

import (
	"context"
	"errors"

	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"
)

// Admission is the rules that a namespace has for what is written in it, whatever the kind: limits, quotas, standards
// of security. It is asked for every write, and has to answer at once where a namespace has none.
type Admission interface {
	// Complete fills in what the namespace says where the client said nothing. It may change Next.
	Complete(ctx context.Context, w Write) error
	// Judge refuses what the namespace does not allow. What it says is after all that is wrong with the object itself.
	Judge(ctx context.Context, w Write) error
	// Charge sets aside what the write takes of the quotas of the namespace, or refuses it when there is not enough
	// left. It is called for each attempt, and each charge is settled once the attempt is over.
	Charge(ctx context.Context, w Write) (Charge, error)
}

// Write is what a request is about to write.
type Write struct {
	// Subresource is what is updated; empty for the object itself.
	Subresource string
	// Live is the object as it is, nil for a new one, and Next as it would be.
	Live, Next object.Object
	// DryRun is true when nothing will be stored.
	DryRun bool
}

// Charge is what an attempt to write has set aside. The zero value is nothing.
type Charge struct {
	// Guard is to be a condition of the transaction.
	Guard store.Guard
	// Settle is told how the transaction ended: with nil, with a *store.ConflictError or ErrNotStored when nothing was
	// stored, and with another error when nobody knows. Nil for the zero value.
	Settle func(err error)
}

// ErrNotStored is what a charge is settled with whose attempt stored nothing.
var ErrNotStored = errors.New("nothing was stored")

// settle ends an attempt.
func (c *Charge) settle(err error) {
	if c.Settle != nil {
		c.Settle(err)
	}
	*c = Charge{}
}

// guard adds the condition of the charge.
func (c *Charge) guard(guards []store.Guard) []store.Guard {
	if c.Settle == nil {
		return guards
	}
	return append(guards, c.Guard)
}

// complete readies what is written by the rules of its namespace.
func (r *Registry) complete(ctx context.Context, w Write) error {
	if r.deps.Admission == nil {
		return nil
	}
	return r.deps.Admission.Complete(ctx, w)
}

// allowed asks the rules of the namespace.
func (r *Registry) allowed(ctx context.Context, w Write) error {
	if r.deps.Admission == nil {
		return nil
	}
	return r.deps.Admission.Judge(ctx, w)
}

// charge sets aside what an attempt takes of the quotas of its namespace.
func (r *Registry) charge(ctx context.Context, w Write) (Charge, error) {
	if r.deps.Admission == nil {
		return Charge{}, nil
	}
	return r.deps.Admission.Charge(ctx, w)
}
