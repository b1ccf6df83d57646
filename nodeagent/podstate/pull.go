package podstate

import "fmt"

// pulled reports whether a container waits because its image was asked for in vain.
func pulled(reason string) bool {
	switch reason {
	case "ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed", "ImagePullBackOff":
		return true
	default:
		return false
	}
}

// pulling reports whether a container waits for its image. Who looked for the image has told the user what is wrong.
func pulling(reason string) bool {
	switch reason {
	case "InvalidImageName", "ImageInspectError", "ErrImageNeverPull":
		return true
	default:
		return pulled(reason)
	}
}

// backOffPull says, after a pull for container i has failed again, that the next one has to wait. image is that of a
// volume, which is the pod's; empty for the container's own.
func (m *StateMachine) backOffPull(i int, image string) {
	c, name := &m.containers[i], m.spec(i).GetName()
	whose := ""
	if image == "" {
		image, whose = m.spec(i).GetImage(), name
	}
	says := fmt.Sprintf("Back-off pulling image %q", image)
	c.waiting, c.message = "ImagePullBackOff", says+": "+c.waiting+": "+c.message
	m.do(Note{Reason: "BackOff", Message: says, Container: whose})
	m.do(Note{Warning: true, Reason: "Failed", Message: "Error: ImagePullBackOff", Container: name})
}
