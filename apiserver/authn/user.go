package authn

import "context"

// Well-known names and groups.
const (
	// AdminName is the user in the kubeconfig that the server writes.
	AdminName = "monoplane:admin"
	// AdminsGroup may do everything.
	AdminsGroup = "system:masters"
	// MonitoringGroup may read the metrics, and what services there are.
	MonitoringGroup = "system:monitoring"
	// NodesGroup holds all node agents; their names are NodePrefix plus the node's name.
	NodesGroup = "system:nodes"
	// NodePrefix begins the user name of a node agent.
	NodePrefix = "system:node:"
	// ControllerPrefix begins the user name of a controller.
	ControllerPrefix = "system:controller:"
	// SchedulerName is the scheduler.
	SchedulerName = "system:scheduler"
	// AnonymousName is a client without credentials, in group UnauthenticatedGroup.
	AnonymousName = "system:anonymous"
	// UnauthenticatedGroup holds clients without credentials.
	UnauthenticatedGroup = "system:unauthenticated"
	// AuthenticatedGroup holds every client with valid credentials.
	AuthenticatedGroup = "system:authenticated"
)

// User is who makes a request.
type User struct {
	// Name is unique.
	Name string
	// Groups are the groups that the user is in.
	Groups []string
	// UID tells two users of one name, one after the other, apart; empty when unknown.
	UID string
	// Extra is what else the authenticator knows.
	Extra map[string][]string
	// Impersonator is who makes the request as this user; nil mostly.
	Impersonator *User
}

type userKey struct{}

// WithUser returns a context of a request that u makes.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns the user that makes the request, nil when it has not been authenticated.
func UserFrom(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}
