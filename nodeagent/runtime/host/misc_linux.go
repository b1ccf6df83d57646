package host

import (
	"context"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// subPathsInfo is where the info of Status says that image_sub_path counts for a host_path too.
const subPathsInfo = "opens_sub_paths"

// usersInfo is where it says why pods cannot have users of their own (hostUsers: false).
const usersInfo = "no_user_namespaces"

// limitsInfo is where it says that UpdatePodSandboxResources limits pods as a whole: other runtimes leave that to the
// agent.
const limitsInfo = "limits_pods"

// Version implements CRI.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: r.name(), RuntimeVersion: "1",
		RuntimeApiVersion: "v1"}, nil
}

// Status implements CRI. The runtime is ready from New to Close.
func (r *Runtime) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	info := map[string]string{subPathsInfo: "host_path", limitsInfo: "cgroup"}
	if ok, why := r.cgroups.Killable(); !ok {
		info["cgroup"] = why
	}
	mapsUsers := r.canMapUsers()
	if mapsUsers != nil {
		info[usersInfo] = mapsUsers.Error()
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: r.closing.Err() == nil},
			r.networkReady(ctx),
		}},
		Info:     info,
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		// Where views are refused, a pod that asks for one fails with the remedy.
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: mapsUsers == nil}},
		},
	}, nil
}

// RuntimeConfig implements CRI. Nobody can choose the cgroups of pods: the runtime makes them where it may, in the
// way that it finds, and UpdatePodSandboxResources says what pods may use.
func (r *Runtime) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

// noServer refuses the calls of CRI that are answered with the address of a server: there is none.
const noServer = "the host runtime serves no addresses: %s goes through the program that it is part of"

// Exec implements CRI. See ExecStream.
func (r *Runtime) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, unimplemented(noServer, "exec")
}

// Attach implements CRI. See AttachStream.
func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, unimplemented(noServer, "attach")
}

// PortForward implements CRI. See Forward.
func (r *Runtime) PortForward(
	context.Context, *runtimeapi.PortForwardRequest,
) (*runtimeapi.PortForwardResponse, error) {
	return nil, unimplemented(noServer, "port-forward")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
