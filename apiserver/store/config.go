package store

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/internal/intern"
	"monoplane.dev/object"
)

// Collection tells the store about one kind.
type Collection struct {
	Kind *object.Kind
	// Field returns the value of a selectable field; ok is false for any other field. metadata.name and
	// metadata.namespace are built in. Nil when there are no further ones.
	Field func(o object.Object, name string) (value string, ok bool)
	// Indexes are selectable fields by which watchers and lists are indexed, such as "spec.nodeName".
	Indexes []string
	// TTL is how long an object lives after its last write; 0 (or a nil TTL) is for ever. Objects share leases,
	// so that one may live up to a minute longer.
	TTL func(o object.Object) time.Duration
	// Max is how many objects are kept; of more, those that were written longest ago are deleted, within a second or
	// two and whatever they are. 0 is any number.
	Max int
	// Sealed kinds are encrypted in the database.
	Sealed bool
	// Share replaces parts of o, which nobody else has seen yet, by equal ones from the pool, so that objects that
	// have much in common take little memory. Live is the object that o was made from, nil for a new one; what o has
	// from live is not o's own. Nil for kinds with nothing in common.
	Share func(pool *intern.Pool, o, live object.Object)
}

// Config says where the data is and what is stored. Only Connect and Collections are required.
type Config struct {
	// Connect leads to the etcd: that of this process (package embedded) or another (package external).
	Connect etcd.Connect
	// Collections are the kinds that can be stored.
	Collections []Collection
	// Keys returns the keys for the kinds that are to be encrypted; used says that something has been encrypted in this
	// database. Nil encrypts nothing.
	Keys func(used bool) (*seal.Keys, error)
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the store's metrics; nil for none.
	Registerer prometheus.Registerer
	// StartTimeout bounds Open; default 30 s.
	StartTimeout time.Duration
	// CompactionInterval is how long etcd keeps its history, unless it has more than HistoryRevisions revisions;
	// defaults 5 min and 5 000. Lists at old revisions need it.
	CompactionInterval time.Duration
	HistoryRevisions   int64
	// HistoryEvents and HistoryBytes bound the changes of each kind from which watches may resume; defaults 20 000
	// and 8 MiB, as an estimate of what they take in memory.
	HistoryEvents int
	HistoryBytes  int64
	// WatchBuffer is how many changes a watcher may lag behind before it is cut off; default 10 000.
	WatchBuffer int
	// BookmarkInterval is the time between bookmarks; default 1 min.
	BookmarkInterval time.Duration
	// Patience is how long a read waits for a revision that is still to come; default 3 s, as in Kubernetes.
	Patience time.Duration
	// OnMutation is told of objects that somebody has changed after they were stored, which nobody may do: when such an
	// object is replaced or deleted, soon after when others of its kind are, and at the end by Close. It may be called by
	// several goroutines and must not call the store. Nil looks for none; it costs time and is for tests.
	OnMutation func(error)

	// wrap puts something in front of etcd. For tests.
	wrap func(etcd.Client) etcd.Client
}
