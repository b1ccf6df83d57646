package store

import "monoplane.dev/object"

// Key names one object.
type Key struct {
	Kind *object.Kind
	// Namespace is empty for cluster-scoped kinds.
	Namespace string
	Name      string
}

// String returns the key as messages name it, such as "pods default/web".
func (k Key) String() string {
	if k.Kind == nil {
		return "turn " + k.Name
	}
	if k.Namespace == "" {
		return k.Kind.Resource() + " " + k.Name
	}
	return k.Kind.Resource() + " " + k.Namespace + "/" + k.Name
}

// Txn is one transaction: all of its operations happen at one revision, or none does.
type Txn struct {
	// Ops change at most one object of each kind, because two events of one kind at one revision could not
	// be resumed by a watcher. (Only deletions may share a revision, and only those of the store and of etcd itself: of
	// what has expired, or is too much.)
	Ops []Op
	// Guards are further conditions, on objects that the transaction need not change, and the turns that it takes.
	Guards []Guard
}

// Op writes or deletes one object.
type Op struct {
	Key Key
	// Object is what to store; nil deletes. It belongs to the store once it is committed and carries the new
	// resourceVersion then.
	Object object.Object
	// Expect is the mod revision that the key must be at; 0 means that it must not exist.
	Expect int64
	// Again has the object written although it is as it was.
	Again bool
}

// Guard is a condition that a transaction compares.
type Guard struct {
	// Key is that of an object; with InTurn and InOffice it has no kind, and the name of the turn.
	Key       Key
	Condition Condition
	// Revision is the mod revision that AtRevision, InTurn and InOffice ask for.
	Revision int64
}

// Condition is what a guard asks of its key.
type Condition int

// The conditions of a guard.
const (
	// Present asks that the object exists.
	Present Condition = iota + 1
	// Absent asks that it does not exist.
	Absent
	// AtRevision asks that its mod revision is the guard's.
	AtRevision
	// InTurn asks that nobody has taken the turn since the guard's revision, and takes it. See Store.Turn.
	InTurn
	// InOffice asks that nobody has taken the turn since the guard's revision, and leaves it as it is. See
	// Store.TakeTurn.
	InOffice
)

// ConflictError says which comparison of a transaction failed, with the object as it was right afterwards.
// Nothing was changed.
type ConflictError struct {
	Key Key
	// Live is the object as it was then; nil when it is absent, and for a turn.
	Live object.Object
	// Guard is true when a guard failed, false when an operation's Expect did.
	Guard bool

	revision int64 // of Live
}

// Error returns the message.
func (e *ConflictError) Error() string {
	switch {
	case e.Key.Kind == nil:
		return e.Key.String() + " has been taken by another write"
	case e.Live == nil:
		return e.Key.String() + " does not exist"
	case e.Guard:
		return e.Key.String() + " is not as the transaction requires"
	default:
		return e.Key.String() + " has been changed by another write"
	}
}
