package kubeclient

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// CreateToken asks for a token of a ServiceAccount, bound and valid as the request says, and returns the answer with the
// token in its status.
func (c *Client) CreateToken(ctx context.Context, namespace, serviceAccount string, tr *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var issued authenticationv1.TokenRequest
	err := once(c.core.Post()).Namespace(namespace).Resource("serviceaccounts").Name(serviceAccount).SubResource("token").
		Body(tr).Do(ctx).Into(&issued)
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s/%s: %w", namespace, serviceAccount, err)
	}
	return &issued, nil
}
