// Package initcontainer tells the init containers that run as long as the pod does, called sidecars, from the plain
// ones, which run one after another before the others start (INIT-4). It knows nothing of what follows for either.
package initcontainer

import corev1 "monoplane.dev/api/core/v1"

// Always is the restart policy of sidecars.
const Always = "Always"

// IsSidecar says whether an init container is a sidecar.
func IsSidecar(c *corev1.Container) bool { return c.GetRestartPolicy() == Always }
