package admin

import (
	"context"

	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
)

// RotateSecretsKey has the server that runs on dataDir make a new key, and encrypt all Secrets with it. It returns the
// id of the key and how many Secrets there were.
func RotateSecretsKey(ctx context.Context, dataDir string) (key string, secrets int, err error) {
	err = call(ctx, dataDir, func(c adminv1rpc.AdminClient) error {
		answer, err := c.RotateSecretsKey(ctx, &adminv1rpc.RotateSecretsKeyRequest{})
		key, secrets = answer.GetKey(), int(answer.GetSecrets())
		return err
	})
	return key, secrets, err
}
