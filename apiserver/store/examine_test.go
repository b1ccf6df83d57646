package store

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"monoplane.dev/apiserver/store/etcd/external"
	"monoplane.dev/apiserver/store/test/etcdtest"
)

// examined is what is found out of members, a line each.
func examined(t *testing.T, endpoints ...string) string {
	t.Helper()
	faults, err := external.Examine(t.Context(), external.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", f.Endpoint, f.What, f.Remedy))
	}
	return strings.Join(lines, "\n")
}

func TestExamine(t *testing.T) {
	e := etcdtest.StartWith(t, func(*embed.Config) {})
	at, dead := "http://"+e.Clients[0].Addr().String(), "http://"+freeAddress(t)
	if said := examined(t, at); said != "" {
		t.Error(said)
	}
	if said := examined(t, dead, at); !strings.HasPrefix(said, dead+": etcd does not answer: ") ||
		strings.Contains(said, "\n") {
		t.Error(said)
	}
	_, err := e.Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE,
		MemberID: uint64(e.Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	if said := examined(t, at); !strings.Contains(said, "alarm NOSPACE: delete what is not needed") {
		t.Error(said)
	}
}

// leaderless is a member that knows no leader, as etcd's tell it.
type leaderless struct {
	etcdserverpb.UnimplementedMaintenanceServer
}

func (leaderless) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{}, Leader: 0}, nil
}

func TestExamineWithoutLeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(server, leaderless{})
	go server.Serve(l) //nolint:errcheck // it ends with Stop
	defer server.Stop()
	at := "http://" + l.Addr().String()
	if said := examined(t, at); !strings.HasPrefix(said, at+": etcd has no leader") || strings.Contains(said, "\n") {
		t.Error(said)
	}
}
