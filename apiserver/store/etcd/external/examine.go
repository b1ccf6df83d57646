package external

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Fault is what is wrong with a member of an external cluster, and what mends it.
type Fault struct{ Endpoint, What, Remedy string }

// examineTime is how long a member may take to say how it is.
const examineTime = 3 * time.Second

// Examine asks each member how it is, and changes nothing.
func Examine(ctx context.Context, cfg Config) ([]Fault, error) {
	cli, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	defer cli.Close()
	var found []Fault
	answering := false
	for _, at := range cfg.Endpoints {
		ctx, cancel := context.WithTimeout(ctx, examineTime)
		status, err := cli.Status(ctx, at)
		cancel()
		switch {
		case err != nil:
			found = append(found, Fault{at, fmt.Sprintf("etcd does not answer: %v", remoteError(err)),
				"start it, or let this machine reach it"})
		case status.Leader == 0:
			found = append(found, Fault{at, "etcd has no leader, so that nothing can be written",
				"start its other members, or let them reach each other: more than half must"})
		default:
			answering = true
		}
	}
	if !answering {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	alarms, err := cli.AlarmList(ctx)
	if err != nil {
		return append(found, Fault{cfg.Endpoints[0], fmt.Sprintf("etcd does not say which alarms it has: %v",
			remoteError(err)), "look at its log"}), nil
	}
	for _, a := range alarms.Alarms {
		f := Fault{fmt.Sprintf("member %x", a.MemberID), "etcd has the alarm " + a.Alarm.String(),
			"restore the member from the others: its data are damaged"}
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			f.Remedy = "delete what is not needed, then etcdctl compact, defrag and alarm disarm, or start the server with " +
				"--etcd-maintenance; or give etcd a larger --quota-backend-bytes"
		}
		found = append(found, f)
	}
	return found, nil
}
