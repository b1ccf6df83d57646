package admin

import (
	"context"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
)

// ReviewPlacement asks the server that runs on dataDir where a pod can go, or why it waits. Nothing is stored.
func ReviewPlacement(
	ctx context.Context, dataDir string, review *schedulingv1.PlacementReview,
) (*schedulingv1.PlacementReview, error) {
	c, err := dial(ctx, dataDir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answer, err := c.PlacementReviews.Create(ctx, &schedulingv1rpc.CreatePlacementReviewRequest{
		Namespace: review.GetMetadata().GetNamespace(), Object: review, FieldManager: "monoplane",
	})
	if err != nil {
		return nil, apierrors.From(err) // what the server says, without how it came
	}
	return answer, nil
}
