package flowcontrol

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	flowcontrolv1 "monoplane.dev/api/flowcontrol/v1"
)

const (
	typeExempt  = "Exempt"
	typeLimited = "Limited"

	answerQueue  = "Queue"
	answerReject = "Reject"

	// mostQueues is how many queues a level may have.
	mostQueues = 10_000_000
	// hashBits is how much of a hash Kubernetes deals queues to flows by.
	hashBits = 60

	// keepZero is the annotation by which an older version of the kind keeps a zero; in this version it means nothing.
	keepZero = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
)

// PriorityLevelConfiguration describes the kind.
func PriorityLevelConfiguration(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*flowcontrolv1.PriorityLevelConfiguration]{
		Kind:     flowcontrolv1.PriorityLevelConfigurationKind,
		Spec:     func(o *flowcontrolv1.PriorityLevelConfiguration) proto.Message { return o.GetSpec() },
		Default:  DefaultPriorityLevelConfiguration,
		Validate: ValidatePriorityLevelConfiguration,
		Guards: define.Warned[*flowcontrolv1.PriorityLevelConfiguration](
			"PriorityLevelConfigurations" + nothing),
		Main: registry.TypedUpdateRules[*flowcontrolv1.PriorityLevelConfiguration]{
			Validate: ValidatePriorityLevelConfigurationUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*flowcontrolv1.PriorityLevelConfiguration]{
			"status": {Keeps: registry.AllMetadata, Validate: ValidatePriorityLevelConfigurationStatusUpdate},
		},
		Table: define.Columns[*flowcontrolv1.PriorityLevelConfiguration]{
			define.Text("Type", "Whether requests are limited.", func(o *flowcontrolv1.PriorityLevelConfiguration) string {
				return o.GetSpec().GetType()
			}),
			define.Any("NominalConcurrencyShares", "Share in what is served at once.",
				func(o *flowcontrolv1.PriorityLevelConfiguration) any {
					l := o.GetSpec().GetLimited()
					return number(l != nil, l.GetNominalConcurrencyShares())
				}),
			queuing("Queues", "How many queues.", (*flowcontrolv1.QueuingConfiguration).GetQueues),
			queuing("HandSize", "Of how many queues a flow takes the shortest.",
				(*flowcontrolv1.QueuingConfiguration).GetHandSize),
			queuing("QueueLengthLimit", "How many requests wait in a queue.",
				(*flowcontrolv1.QueuingConfiguration).GetQueueLengthLimit),
			define.Age[*flowcontrolv1.PriorityLevelConfiguration](),
		},
	}.Strategy()}
}

// queuing is a column about how requests wait.
func queuing(
	name, description string, of func(*flowcontrolv1.QueuingConfiguration) int32,
) define.Column[*flowcontrolv1.PriorityLevelConfiguration] {
	return define.Any(name, description, func(o *flowcontrolv1.PriorityLevelConfiguration) any {
		q := o.GetSpec().GetLimited().GetLimitResponse().GetQueuing()
		return number(q != nil, of(q))
	})
}

func number(given bool, n int32) any {
	if !given {
		return define.OrNone("")
	}
	return int64(n)
}

// DefaultPriorityLevelConfiguration fills in a level; call it on create and update.
func DefaultPriorityLevelConfiguration(o *flowcontrolv1.PriorityLevelConfiguration) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	if e := o.Spec.Exempt; e != nil {
		defaults.SetPtr(&e.NominalConcurrencyShares, 0)
		defaults.SetPtr(&e.LendablePercent, 0)
	}
	if l := o.Spec.Limited; l != nil {
		defaults.SetPtr(&l.NominalConcurrencyShares, 30)
		defaults.SetPtr(&l.LendablePercent, 0)
		defaults.Message(&l.LimitResponse)
		if q := l.LimitResponse.Queuing; q != nil {
			defaultZero(&q.HandSize, 8)
			defaultZero(&q.Queues, 64)
			defaultZero(&q.QueueLengthLimit, 50)
		}
	}
}

// ValidatePriorityLevelConfiguration checks a level that is to be created.
func ValidatePriorityLevelConfiguration(o *flowcontrolv1.PriorityLevelConfiguration) []apierrors.Cause {
	return wrongLevel(o, nil)
}

// ValidatePriorityLevelConfigurationUpdate checks that a change of a level is allowed: all of its spec may change.
func ValidatePriorityLevelConfigurationUpdate(new, old *flowcontrolv1.PriorityLevelConfiguration) []apierrors.Cause {
	return wrongLevel(new, old)
}

// ValidatePriorityLevelConfigurationStatusUpdate checks a change of a level's status.
func ValidatePriorityLevelConfigurationStatusUpdate(
	new, old *flowcontrolv1.PriorityLevelConfiguration,
) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		checkConditions(f, f.Root("status").Child("conditions"), new.GetStatus().GetConditions())
	}
	return f.Causes()
}

func wrongLevel(o, old *flowcontrolv1.PriorityLevelConfiguration) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), false, validation.NameIsSubdomain)
		if _, ok := o.GetMetadata().GetAnnotations()[keepZero]; ok {
			f.Forbidden(f.Root("metadata").Child("annotations"), "annotation '"+keepZero+"' is forbidden")
		}
		name, s, p := o.GetMetadata().GetName(), o.GetSpec(), f.Root("spec")
		if (name == exempt) != (s.GetType() == typeExempt) {
			f.Invalid(p.Child("type"), s.GetType(), "must be 'Exempt' if and only if `name` is 'exempt'")
		}
		checkLevel(f, p, s)
		switch {
		case name == exempt && (s.GetType() != typeExempt || s.GetLimited() != nil):
			mustBe(f, p, s, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value")
		case name == catchAll && !validation.Equal(s, fixedLevel()):
			mustBe(f, p, s, "spec of 'catch-all' must equal the fixed value")
		}
	}
	return f.Causes()
}

// fixedLevel is what level catch-all has to say.
func fixedLevel() *flowcontrolv1.PriorityLevelConfigurationSpec {
	return &flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: typeLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: proto.Int32(5), LendablePercent: proto.Int32(0),
			LimitResponse: &flowcontrolv1.LimitResponse{Type: answerReject},
		},
	}
}

func checkLevel(f *validation.Faults, p *validation.Path, s *flowcontrolv1.PriorityLevelConfigurationSpec) {
	limited, at := s.GetLimited(), p.Child("limited")
	switch s.GetType() {
	case typeExempt:
		if limited != nil {
			f.Forbidden(at, "must be nil if the type is not Limited")
		}
		checkShares(f, p.Child("exempt"), s.GetExempt().GetNominalConcurrencyShares(), s.GetExempt().GetLendablePercent())
	case typeLimited:
		if s.GetExempt() != nil {
			f.Forbidden(p.Child("exempt"), "must be nil if the type is Limited")
		}
		if limited == nil {
			f.Required(at, "must not be empty when type is Limited")
			return
		}
		checkShares(f, at, limited.GetNominalConcurrencyShares(), limited.GetLendablePercent())
		if n := limited.GetBorrowingLimitPercent(); n < 0 {
			f.InvalidValue(at.Child("borrowingLimitPercent"), n, "if specified, must be a non-negative integer")
		}
		checkAnswer(f, at.Child("limitResponse"), limited.GetLimitResponse())
	default:
		f.RequiredOneOf(p.Child("type"), s.GetType(), typeExempt, typeLimited)
	}
}

func checkShares(f *validation.Faults, p *validation.Path, shares, lendable int32) {
	if shares < 0 {
		f.InvalidValue(p.Child("nominalConcurrencyShares"), shares, "must be a non-negative integer")
	}
	if lendable < 0 || lendable > 100 {
		f.InvalidValue(p.Child("lendablePercent"), lendable, "must be between 0 and 100, inclusive")
	}
}

func checkAnswer(f *validation.Faults, p *validation.Path, a *flowcontrolv1.LimitResponse) {
	q, at := a.GetQueuing(), p.Child("queuing")
	switch a.GetType() {
	case answerReject:
		if q != nil {
			f.Forbidden(at, "must be nil if limited.limitResponse.type is not Limited")
		}
	case answerQueue:
		if q == nil {
			f.Required(at, "must not be empty if limited.limitResponse.type is Limited")
			return
		}
		checkQueues(f, at, q)
	default:
		f.RequiredOneOf(p.Child("type"), a.GetType(), answerQueue, answerReject)
	}
}

func checkQueues(f *validation.Faults, p *validation.Path, q *flowcontrolv1.QueuingConfiguration) {
	queues, hand := q.GetQueues(), q.GetHandSize()
	if n := q.GetQueueLengthLimit(); n <= 0 {
		f.InvalidValue(p.Child("queueLengthLimit"), n, "must be positive")
	}
	switch at := p.Child("queues"); {
	case queues <= 0:
		f.InvalidValue(at, queues, "must be positive")
	case queues > mostQueues:
		f.InvalidValue(at, queues, fmt.Sprintf("must not be greater than %d", mostQueues))
	}
	at := p.Child("handSize")
	switch bits := dealing(queues, hand); {
	case hand <= 0:
		f.InvalidValue(at, hand, "must be positive")
	case hand > queues:
		f.InvalidValue(at, hand, fmt.Sprintf("should not be greater than queues (%d)", queues))
	case bits > hashBits:
		f.InvalidValue(at, hand, fmt.Sprintf(
			"required entropy bits of deckSize %d and handSize %d should not be greater than %d", queues, hand, hashBits))
	}
}

// dealing returns how many bits of a hash it takes to choose so many of so many queues; 0 where that makes no sense.
func dealing(queues, hand int32) int {
	if queues <= 0 || hand <= 0 {
		return 0
	}
	return int(math.Ceil(math.Log2(float64(queues)) * float64(hand)))
}
