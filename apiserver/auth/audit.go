package auth

import (
	"context"
	"log/slog"

	"monoplane.dev/apiserver/audit"
)

// LevelAudit is the level of the audit's lines: above all others, so that no choice of level hides them.
const LevelAudit = slog.LevelError + 4

// Audit records what an administrator must be able to find again: as a line in the server's log, and in the audit log
// (package audit) where there is one, whatever its policy says. It is safe for concurrent use.
type Audit struct {
	log *slog.Logger
}

// NewAudit returns an audit that writes to log.
func NewAudit(log *slog.Logger) *Audit { return &Audit{log: log} }

// ForcedDeletion records that a pod was removed, or told to go, without its agent's confirmation (DEL-8,
// FENCE-4). Pod is namespace/name; node is empty for an unbound pod.
func (a *Audit) ForcedDeletion(ctx context.Context, user, pod, uid, node string) {
	audit.From(ctx).Act("forced-deletion")
	a.log.LogAttrs(ctx, LevelAudit, "forced deletion",
		slog.String("audit", "forced-deletion"), slog.String("user", user),
		slog.String("pod", pod), slog.String("uid", uid), slog.String("node", node))
}

// BreakGlass records that somebody says of a node that what ran there does not count any more (FENCE-4): by a deletion
// of the Node while pods are bound to it (delete-node), by the taint for that (out-of-service), or at the start of a
// copy of its data (confirm-original-dead). User is empty for who starts the server.
func (a *Audit) BreakGlass(ctx context.Context, user, what, node, uid string) {
	audit.From(ctx).Act("break-glass")
	a.log.LogAttrs(ctx, LevelAudit, "break-glass",
		slog.String("audit", "break-glass"), slog.String("user", user), slog.String("what", what),
		slog.String("node", node), slog.String("uid", uid))
}

// Impersonation records that user makes a request as somebody else, with groups.
func (a *Audit) Impersonation(ctx context.Context, user, as string, groups []string) {
	a.log.LogAttrs(ctx, LevelAudit, "impersonation",
		slog.String("audit", "impersonation"), slog.String("user", user),
		slog.String("as", as), slog.Any("groups", groups))
}

// Stream records that somebody runs a command in a container (exec), attaches to one, or forwards a port of a pod.
// What is the subresource, detail the command or the port.
func (a *Audit) Stream(ctx context.Context, user, what, pod, uid, container string, detail []string) {
	audit.From(ctx).Act(what)
	a.log.LogAttrs(ctx, LevelAudit, "stream",
		slog.String("audit", what), slog.String("user", user), slog.String("pod", pod), slog.String("uid", uid),
		slog.String("container", container), slog.Any("detail", detail))
}
