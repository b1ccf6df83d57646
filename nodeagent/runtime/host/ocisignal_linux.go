package host

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withStopSignal is the configuration with the stop signal of the image where the pod asks for none, so that it is
// told in the status of the container, and stays what it is. What an image calls by a name that nobody knows is left
// alone: then it is SIGTERM.
func (r *Runtime) withStopSignal(
	config *runtimeapi.ContainerConfig, image string,
) (*runtimeapi.ContainerConfig, error) {
	if image == "" || config.GetStopSignal() != runtimeapi.Signal_RUNTIME_DEFAULT {
		return config, nil
	}
	is, err := r.oci.Images.Image(image)
	if err != nil {
		return nil, imageError(err)
	}
	signal := imageSignal(is.Config.StopSignal)
	if signal == runtimeapi.Signal_RUNTIME_DEFAULT {
		return config, nil
	}
	out := proto.CloneOf(config)
	out.StopSignal = signal
	return out, nil
}

// imageSignal reads the STOPSIGNAL of an image: a number, or a name with SIG before it or without.
func imageSignal(text string) runtimeapi.Signal {
	name := strings.ToUpper(strings.TrimSpace(text))
	n, err := strconv.Atoi(name)
	if err != nil {
		if !strings.HasPrefix(name, "SIG") {
			name = "SIG" + name
		}
		name = strings.NewReplacer("RTMIN+", "RTMINPLUS", "RTMAX-", "RTMAXMINUS").Replace(name)
		return runtimeapi.Signal(runtimeapi.Signal_value[name])
	}
	if n <= 0 || n > 64 {
		return runtimeapi.Signal_RUNTIME_DEFAULT
	}
	// Several names have one number: the smallest number in CRI is the one that is meant, as the usual name is first.
	for s := runtimeapi.Signal(1); int(s) < len(runtimeapi.Signal_name); s++ {
		if is, err := stopSignal(s); err == nil && is == unix.Signal(n) {
			return s
		}
	}
	return runtimeapi.Signal_RUNTIME_DEFAULT
}
